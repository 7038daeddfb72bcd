"""The trigger form: Airflow's parameters, made from the table of fields, the catalogue and the grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_tpu.core.grant.alternatives import types_of, with_zones_of
from airflow_tpu.core.request.fields import REQUIRED
from airflow_tpu.core.request.form_fields import FORM, Form, FormField
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.stores.grants import grant_at_parse, load_catalogue

if TYPE_CHECKING:
    from airflow_tpu.core.catalogue.catalogue import Catalogue
    from airflow_tpu.core.grant.grant import Grant


def train_params(*, form: Form = FORM, **defaults: str | float) -> dict[str, Param]:
    """Return the parameters of a DAG that trains on a TPU.

    .. code-block:: python

        DAG(params=train_params(script="mine.py", deadline_hours=6), ...)

    A field shows the default that the DAG gives, else what the grant covers first, else its own default.

    :param form: the fields there are.
    :param defaults: defaults of this DAG, by the name of the field.
    :raises ConfigError: a default is for no field, which fails the DAG's import.
    """
    faults = [Fault(name, value, "no such field", tuple(form)) for name, value in defaults.items() if name not in form]
    if faults:
        raise ConfigError(faults, "the DAG's defaults of the trigger form")
    catalogue, grant = load_catalogue(), grant_at_parse()
    if grant is not None:
        catalogue = with_zones_of(grant, catalogue)
    shown = {**_first_of(catalogue), **_first_of_grant(catalogue, grant), **defaults}
    schemas = {name: row.schema(catalogue) for name, row in form.items()}
    schemas["accelerator_type"]["description_md"] += f" {_covered(grant)}"
    return {name: Param(_value(row, shown.get(name)), **schemas[name]) for name, row in form.items()}


def _value(row: FormField, shown: Any) -> Any:
    """What the field shows; an optional text that is empty is null, since the form calls an empty one an error."""
    value = (row.proposal if row.default is REQUIRED else row.default) if shown is None else shown
    return None if row.optional and value == "" else value


def _covered(grant: Grant | None) -> str:
    if grant is None:
        return "The grant is read when the run starts."
    return "The grant covers:\n" + "\n".join(f"* {row}" for row in grant.allowances)


def _first_of(catalogue: Catalogue) -> dict[str, str]:
    name = catalogue.single_host_types()[0]
    return {"accelerator_type": name, "zone": catalogue.zones_of(name)[0]}


def _first_of_grant(catalogue: Catalogue, grant: Grant | None) -> dict[str, str]:
    """The grant's bucket, and the TPU of its first row that a type of one worker fits."""
    if grant is None:
        return {}
    uri = {"artifacts_uri": f"gs://{grant.bucket}/{grant.prefix}/runs"}
    for row in grant.allowances:
        kind = next(iter(types_of(row, catalogue)), None)
        if kind is not None and row.zone in catalogue.zones_of(kind.name):
            return {**uri, "accelerator_type": kind.name, "zone": row.zone, "tier": str(row.tier)}
    return uri
