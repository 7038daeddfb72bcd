# SPDX-License-Identifier: Apache-2.0
"""Processes of Airflow that a run depends on: what is missing is said before the run waits for it."""

from __future__ import annotations

import logging

import pytest
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from airflow_tpu.lifecycle.preflight.processes import check_triggerer, warn_of_reaper
from tests.airflow_tpu.supervisor import Supervisor


@pytest.mark.parametrize(
    ("paused", "level", "words"),
    [(True, logging.WARNING, "tpu_reaper is paused"), (None, logging.INFO, "no DAG tpu_reaper"), (False, 0, "")],
)
def test_reaper_that_does_not_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, paused: bool | None, level: int, words: str
) -> None:
    """A paused one is a warning that says how to unpause it; one that runs is no line at all."""
    with Supervisor(paused=paused) as supervisor, caplog.at_level(logging.INFO, "airflow_tpu"):
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=supervisor.socket), raising=False)
        warn_of_reaper()
    found = [
        (record.levelno, record.getMessage()) for record in caplog.records if record.name.startswith("airflow_tpu")
    ]
    assert [number for number, _ in found] == ([level] if words else [])
    assert all(text.startswith(words) for _, text in found)


def test_triggerer_that_cannot_be_seen_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Behind a login nothing is claimed, but what to look at is said."""
    with caplog.at_level(logging.INFO, "airflow_tpu"):
        check_triggerer()
    assert "cannot be seen from here" in caplog.text
