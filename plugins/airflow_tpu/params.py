# SPDX-License-Identifier: Apache-2.0
"""The trigger form: Airflow's parameters, made from the table of fields, the catalogue and the grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

from airflow.sdk import Param

from airflow_tpu.core.grant.alternatives import form_defaults, with_zones_of
from airflow_tpu.core.request.fields import REQUIRED
from airflow_tpu.core.request.form_fields import FORM, Form, FormField
from airflow_tpu.errors import ConfigError
from airflow_tpu.stores.grants import grant_at_parse, load_catalogue

if TYPE_CHECKING:
    from airflow_tpu.core.catalogue.catalogue import Catalogue
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.tpu_run import TPURun


def train_params(*, form: Form = FORM, **defaults: Unpack[TPURun]) -> dict[str, Param]:
    """Return the parameters of a DAG that trains on a TPU.

    .. code-block:: python

        DAG(params=train_params(script="mine.py", deadline_hours=6), ...)

    A field shows the default that the DAG gives, else what the grant covers first beside those, else its own default.

    :param form: the fields there are.
    :param defaults: defaults of this DAG, by the name of the field.
    :raises ConfigError: a default is for no field, which fails the DAG's import.
    """
    if unknown := [name for name in defaults if name not in form]:
        from airflow_tpu.core.request.unknown_fields import unknown_field  # only a mistake needs it

        faults = [unknown_field(name, form) for name in unknown]
        raise ConfigError(faults, "the DAG's defaults of the trigger form")
    catalogue, grant = load_catalogue(), grant_at_parse()
    if grant is not None:
        catalogue = with_zones_of(grant, catalogue)
    from_grant = form_defaults(defaults, grant, catalogue) if grant is not None else {}
    shown = {**_first_of(catalogue, defaults), **from_grant, **defaults}
    schemas = {name: row.schema(catalogue) for name, row in form.items()}
    schemas["accelerator_type"]["description_md"] += f" {_covered(grant)}"
    return {name: _param(_value(row, _line(shown.get(name))), schemas[name]) for name, row in form.items()}


class _Schema(dict[str, Any]):
    """What a field may hold; one for all copies of it: Airflow copies the form some times for each task of a DAG."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Schema:
        return self


def _param(value: Any, schema: dict[str, Any]) -> Param:
    return Param(value, schema.pop("description", None), schema=_Schema(schema))


def form_run(**changes: Unpack[TPURun]) -> TPURun:
    """Return the run that the form of the DAG describes, as a ``conf``; for a form with parameters of its own.

    .. code-block:: python

        DAG(params={**train_params(), "lr": Param(0.01)}, ...)
        tpu_session(conf=form_run(arguments="--lr={{ params.lr }}"))

    :param changes: fields that are something else than what the form says.
    """
    typed = {name: f"{{{{ '' if params.{name} is none else params.{name} }}}}" for name in FORM}
    return cast("TPURun", {**typed, **changes})


def _line(value: Any) -> Any:
    """A list of words or a mapping of variables as a person types it into the form."""
    if isinstance(value, Mapping):
        return "\n".join(f"{name}={content}" for name, content in value.items())
    if isinstance(value, list | tuple):
        import shlex

        return shlex.join(map(str, value))
    return value


def _value(row: FormField, shown: Any) -> Any:
    """What the field shows; an optional text that is empty is null, since the form calls an empty one an error."""
    value = (row.proposal if row.default is REQUIRED else row.default) if shown is None else shown
    return None if row.optional and value == "" else value


def _covered(grant: Grant | None) -> str:
    if grant is None:
        return "The grant is read when the run starts."
    return "The grant covers:\n" + "\n".join(f"* {row}" for row in grant.allowances)


def _first_of(catalogue: Catalogue, given: Mapping[str, Any]) -> dict[str, str]:
    """A type and its first zone, where the grant says neither."""
    name = given.get("accelerator_type", catalogue.single_host_types()[0])
    return {"accelerator_type": name, "zone": next(iter(catalogue.zones_of(name)), "")}
