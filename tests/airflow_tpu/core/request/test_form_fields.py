# SPDX-License-Identifier: Apache-2.0
"""One table of fields: form, check and documentation are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.fields import REQUIRED
from airflow_tpu.core.request.form_fields import FORM, Form
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.errors import ConfigError
from airflow_tpu.params import train_params
from scripts import form_page

GIVEN = {
    "script": "hello.py",
    "accelerator_type": "v2-8",
    "zone": "us-central1-f",
    "artifacts_uri": "gs://trc-local/runs",
}
OTHER: Mapping[str, Any] = MappingProxyType(
    {
        "arguments": "--other",
        "source": "other",
        "source_conn_id": "other",
        "command": "python other.py",
        "requirements": "other.txt",
        "framework": "jax",
        "data_uri": "gs://other/data",
        "revision": "v11",
        "seed": 11,
        "environment": "OTHER=1",
        "secrets": "OTHER = variable:other",
        "tier": "on-demand",
        "runtime_version": "tpu-ubuntu2204-base",
        "provisioning": "node",
        "on_stock_out": "walk",
        "internal_ips": True,
        "network": "other",
        "subnetwork": "other",
        "service_account": "other@p.iam.gserviceaccount.com",
        "outputs": "other.h5",
        "model": "other",
        "deadline_hours": 11,
        "start_within_hours": 11,
        "max_preemptions": 11,
        "stall_minutes": 11,
        "unreachable_minutes": 12,
        "on_changed_code": "refuse",
        "allow_paid_reason": "other",
    }
)
"""For each field with a default, another one."""


def with_default(name: str) -> Form:
    """The table with another default in one row."""
    return {**FORM, name: replace(FORM[name], default=OTHER[name])}


def parsed(catalogue: Catalogue, form: Form, **given: Any) -> RunConf:
    """What is read of a form in which only what must be given is given."""
    return RunConf.parse({**GIVEN, **given}, catalogue, form)


def page_row(form: Form, name: str) -> str:
    """A field's row in the documentation."""
    (row,) = [line for line in form_page.page(form).splitlines() if line.startswith(f"| `{name}` |")]
    return row


@pytest.fixture(autouse=True)
def _no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a grant the form shows the defaults themselves."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "variable:elsewhere")


def test_every_row_with_a_default_is_tried_with_another() -> None:
    """The tests below leave no default out."""
    assert set(OTHER) == {name for name, row in FORM.items() if row.default is not REQUIRED}
    assert [name for name, other in OTHER.items() if FORM[name].default == other] == []


@pytest.mark.parametrize("name", OTHER)
def test_default_of_a_row_is_the_one_of_the_check(catalogue: Catalogue, name: str) -> None:
    """A field that is left out has the row's default, and another one when the row has another."""
    changed = with_default(name)
    assert getattr(parsed(catalogue, FORM), name) == getattr(
        parsed(catalogue, FORM, **{name: FORM[name].default}), name
    )
    assert getattr(parsed(catalogue, changed), name) == getattr(parsed(catalogue, FORM, **{name: OTHER[name]}), name)
    assert getattr(parsed(catalogue, changed), name) != getattr(parsed(catalogue, FORM), name)


@pytest.mark.parametrize("name", OTHER)
def test_default_of_a_row_is_the_one_of_the_form(name: str) -> None:
    """The form shows the row's default, and another one when the row has another."""
    assert (train_params()[name].resolve() or FORM[name].default) == FORM[name].default
    assert train_params(form=with_default(name))[name].resolve() == OTHER[name]


@pytest.mark.parametrize("name", OTHER)
def test_default_of_a_row_is_the_one_of_the_documentation(name: str) -> None:
    """The page says the row's default, and another one when the row has another."""
    written = "empty" if FORM[name].optional else f"`{str(FORM[name].default).lower()}`"
    default = page_row(FORM, name).split(" | ")[2]
    assert default.removeprefix("the grant's first row that fits, else ").startswith(written)
    assert f"`{OTHER[name]}`".lower() in page_row(with_default(name), name).split(" | ")[2].lower()


def test_check_and_form_have_the_fields_of_the_table() -> None:
    """A run has one attribute for each row and takes no default of its own, and the form one field for each."""
    assert {field.name for field in fields(RunConf)} == set(FORM) == set(train_params())
    with pytest.raises(TypeError, match=f"missing {len(FORM)} required"):
        RunConf()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("max_preemptions", 1001),
        ("stall_minutes", 43_201),
        ("unreachable_minutes", 0),
        ("unreachable_minutes", 61),
        ("deadline_hours", 0),
        ("deadline_hours", 721),
    ],
)
def test_form_and_check_have_the_same_limits(catalogue: Catalogue, name: str, value: float) -> None:
    """What the form's schema refuses the check refuses, and the last good value passes both."""
    schema = FORM[name].schema(catalogue)
    assert value > schema["maximum"] or value < schema.get("minimum", 0) or value <= schema.get("exclusiveMinimum", -2)
    with pytest.raises(ConfigError, match=name):
        parsed(catalogue, FORM, **{name: value})
    assert getattr(parsed(catalogue, FORM, **{name: schema["maximum"]}), name) == schema["maximum"]
