# SPDX-License-Identifier: Apache-2.0
"""Nights of a backfill: each DAG run has a date, and each training names the one that it was started for."""

from __future__ import annotations

from dataclasses import replace

from localcloud.testing import eventually
from tests.airflow.runs import POLL, TIMEOUT, TrainingRun
from tests.dags.evidence import bucket


def backfill(run: TrainingRun, *dates: str) -> set[str]:
    """Ask Airflow for all nights from the first to the last of these, three at once; returns the dates."""
    run.pause(False)
    interval = {"from_date": f"{dates[0]}T00:00:00Z", "to_date": f"{dates[-1]}T00:00:00Z"}
    run.client.call("/api/v2/backfills", {"dag_id": run.dag, **interval, "max_active_runs": 3, "dag_run_conf": {}})
    return set(dates)


def end_one_after_the_other(run: TrainingRun, wanted: set[str]) -> None:
    """Let the training of each night end, and that of one that Airflow finds due besides, until all runs are over.

    :param wanted: dates that have to be among them.
    :raises AssertionError: one has begun before the DAG runs of the others were over, or a DAG run has failed.
    """
    done: set[str] = set()

    def is_further(found: tuple[set[str], dict[str, str]]) -> bool:
        begun, states = found
        return begun > done or (wanted <= done and set(states.values()) <= {"success", "failed"})

    while True:
        begun, states = eventually(lambda: (_begun(run), _states(run)), is_further, TIMEOUT, POLL)
        assert {states[night] for night in done} <= {"success"}, states
        if begun == done:
            assert set(states.values()) == {"success"}, states
            return
        assert len(begun) == len(done) + 1, (begun, done)
        (night,) = begun - done
        replace(run, name=f"night-{night}").let_end()
        done.add(night)


def _begun(run: TrainingRun) -> set[str]:
    """Dates of the nights whose training has begun."""
    names = [blob.name for blob in bucket(run.cloud).list_blobs(prefix="starts/night-")]
    return {name.split("/")[1].removeprefix("night-") for name in names}


def _states(run: TrainingRun) -> dict[str, str]:
    """State of each DAG run by its date."""
    found = run.client.call(f"/api/v2/dags/{run.dag}/dagRuns?limit=100")["dag_runs"]
    return {str(one["logical_date"])[:10]: str(one["state"]) for one in found}
