# SPDX-License-Identifier: Apache-2.0
"""A job says all that is wrong with it, and survives the way to the worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.errors import ConfigError

GOOD: dict[str, Any] = {"run_name": "tpu-train-0123456789", "attempt": 2, "argv": ("python3", "./a.py", "", "ü\n")}


def test_a_job_comes_back_from_json_as_it_was() -> None:
    """Every field survives JSON."""
    job = JobSpec(
        **GOOD,
        environment={"A": "1"},
        working_dir="sub",
        setup=("true",),
        grace_secs=5.0,
        deadline=1.5e9,
        artifacts=("model/*",),
        stall_secs=60.0,
        own_resource="projects/p/locations/z/queuedResources/q",
        artifacts_uri="gs://bucket/prefix",
        abandon_secs=5.0,
    )
    assert json_form.from_json(JobSpec, json.loads(json.dumps(json_form.to_json(job)))) == job


def test_a_reference_comes_back_from_json_as_it_was() -> None:
    """A job's name travels through a trigger."""
    ref = JobSpec(**GOOD).ref
    assert (
        json_form.from_json(RunRef, json.loads(json.dumps(json_form.to_json(ref))))
        == ref
        == RunRef("tpu-train-0123456789", 2)
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_name", "../up"),
        ("run_name", ""),
        ("run_name", "-x"),
        ("run_name", "x" * 64),
        ("attempt", 0),
        ("argv", ()),
        ("argv", ("",)),
        ("argv", ("a\0b",)),
        ("environment", {"A=B": "x"}),
        ("environment", {"": "x"}),
        ("environment", {"A": "x\0"}),
        ("working_dir", "/etc"),
        ("working_dir", "a/../.."),
        ("artifacts", ("/etc/*",)),
        ("grace_secs", -1.0),
        ("grace_secs", float("nan")),
        ("deadline", 0.0),
        ("deadline", float("inf")),
        ("stall_secs", -1.0),
        ("abandon_secs", 0.0),
        ("mirror_secs", float("nan")),
        ("checkpoints_uri", "gs://bucket"),
        ("artifacts_uri", "/results"),
        ("own_resource", "projects/p/locations/z/nodes"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    """Each wrong value is refused before anything is created, and the error names its field."""
    with pytest.raises(ConfigError) as caught:
        JobSpec(**{**GOOD, field: value})
    assert [fault.field for fault in caught.value.faults] == [field]


def test_all_faults_are_told_at_once() -> None:
    """Three wrong fields give one error with three faults."""
    with pytest.raises(ConfigError) as caught:
        JobSpec("", 0, ())
    assert [fault.field for fault in caught.value.faults] == ["run_name", "attempt", "argv"]


def test_the_environment_is_not_shown() -> None:
    """What is printed of a job, in a log or a traceback, has no value of its environment in it."""
    job = JobSpec(**GOOD, environment={"TOKEN": "hush"})
    assert "hush" not in repr(job)
