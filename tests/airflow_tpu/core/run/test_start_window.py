# SPDX-License-Identifier: Apache-2.0
"""Until when a run wants its first TPU."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.run.run_record import Lease, RunRecord
from airflow_tpu.core.run.start_window import closes_at
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.identities import AIRFLOW

START = dt.datetime(2026, 11, 28, 2, 15, tzinfo=dt.UTC)
FORM = {
    "script": "hello.py",
    "accelerator_type": "v2-8",
    "zone": "us-central1-f",
    "artifacts_uri": "gs://bucket-a/runs",
    "deadline_hours": 24,
}


def closing(catalogue: Catalogue, record: RunRecord | None = None, **form: Any) -> dt.datetime | None:
    """When the window of a run closes that was started at START."""
    held = record or RunRecord(
        RunKey(AIRFLOW, "nightly", "run"), Lease("token", START + dt.timedelta(hours=24)), "us-central1-f"
    )
    return closes_at(RunConf.parse({**FORM, **form}, catalogue), held)


def test_window_is_counted_from_the_start_of_the_run(catalogue: Catalogue) -> None:
    """Four hours after 02:15 it is 06:15, however long the deadline is."""
    assert closing(catalogue, start_within_hours=4) == START + dt.timedelta(hours=4)
    assert closing(catalogue, start_within_hours="0.5") == START + dt.timedelta(minutes=30)


@pytest.mark.parametrize("form", [{}, {"start_within_hours": 0}], ids=["left out", "zero"])
def test_no_window_means_the_deadline(catalogue: Catalogue, form: dict[str, Any]) -> None:
    """Without a window a run waits for a TPU until the deadline."""
    assert closing(catalogue, **form) is None


def test_run_that_has_had_a_tpu_is_not_skipped(catalogue: Catalogue) -> None:
    """After a preemption the run waits for the next TPU until its deadline: its work is not given up."""
    record = RunRecord(
        RunKey(AIRFLOW, "nightly", "run"),
        Lease("token", START + dt.timedelta(hours=24)),
        "us-central1-f",
        incarnation=1,
    )
    asked = record.with_life("nightly-1", training_seconds=0.0)
    assert closing(catalogue, asked, start_within_hours=4) is not None
    assert closing(catalogue, asked.with_life("nightly-1", ready_at=START), start_within_hours=4) is None


@pytest.mark.parametrize("value", [-1, "soon", None, 24 * 31], ids=str)
def test_window_that_makes_no_sense_is_refused(catalogue: Catalogue, value: Any) -> None:
    """Below zero, no number at all, or longer than any deadline."""
    with pytest.raises(ConfigError, match="start_within_hours"):
        closing(catalogue, start_within_hours=value)
