# SPDX-License-Identifier: Apache-2.0
"""Where a name belongs that is no field of a run."""

from __future__ import annotations

import inspect

import pytest
from airflow.sdk import BaseOperator

from airflow_tpu.core.request.form_fields import FORM
from airflow_tpu.core.request.unknown_fields import OPERATOR_ARGUMENTS, unknown_field
from airflow_tpu.operators.base import CloudTPUBaseOperator, FencedOperator


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("dedline_hours", "deadline_hours"),
        ("Zone", "zone"),
        ("accelerator-type", "accelerator_type"),
        ("arguements", "arguments"),
        ("deadline", "deadline_hours"),
        ("runtime", "runtime_version"),
        ("args", "arguments"),
        ("region", "zone"),
        ("bucket", "artifacts_uri"),
    ],
)
def test_a_slip_of_the_pen_gets_the_field_that_was_meant(name: str, field: str) -> None:
    """The nearest spelling, the beginning of a name, and what other tools call the field."""
    fault = unknown_field(name, FORM)
    assert (fault.field, fault.nearest, fault.allowed) == (name, field, tuple(FORM))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("learning_rate", "an option of the script belongs in the field arguments: --learning_rate=..."),
        ("batch-size", "in the field arguments: --batch-size=..."),
        ("--epochs", "in the field arguments: --epochs=..."),
        ("TF_CPP_MIN_LOG_LEVEL", "a variable of the script belongs in the field environment: TF_CPP_MIN_LOG_LEVEL=..."),
        ("gcp_conn_id", "an argument of the operator, beside conf: tpu_session(conf=..., gcp_conn_id=...)"),
        ("retries", "an argument of the operator"),
        ("project_id", "the connection names the project"),
    ],
)
def test_another_name_gets_the_place_that_it_belongs_in(name: str, place: str) -> None:
    """No field is proposed that merely looks a little like it; its value, perhaps a secret, is not shown."""
    fault = unknown_field(name, FORM)
    assert place in fault.problem
    assert (fault.nearest, fault.allowed, fault.value) == (None, (), "(hidden)")


@pytest.mark.parametrize("name", ["", 7, "a b", "ü" * 1000])
def test_a_name_that_belongs_nowhere_gets_the_list(name: object) -> None:
    """What is no name at all is answered with the fields there are, and cut."""
    fault = unknown_field(name, FORM)
    assert (fault.problem, fault.allowed, len(fault.field) <= 100) == ("no such field", tuple(FORM), True)


def test_arguments_of_the_operators_are_known_by_their_names() -> None:
    """Each one of the list is an argument of Airflow's or ours, all of ours are in it, and none is a field."""
    ours = {name for kind in (CloudTPUBaseOperator, FencedOperator) for name in inspect.signature(kind).parameters}
    theirs = set(inspect.signature(BaseOperator).parameters)
    assert OPERATOR_ARGUMENTS - ours - theirs == set()
    assert ours - {"conf", "kwargs"} - OPERATOR_ARGUMENTS - theirs == set()
    assert OPERATOR_ARGUMENTS & set(FORM) == set()
