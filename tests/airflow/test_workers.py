# SPDX-License-Identifier: Apache-2.0
"""Every process that a task depends on, killed or held in every phase of a run: the long form of test_processes.py.

``scripts/soak`` writes the outcomes of the kills into docs/fault-matrix.md.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from localcloud.testing import eventually
from tests.airflow.parallel_runs import ParallelRuns
from tests.airflow.phases import BRING, on_machine, to_train, to_wait
from tests.airflow.runs import POLL, TIMEOUT, TrainingRun, ends_green
from tests.airflow.variants import CELERY, OVERRUN, TRAIN, WORKING
from tests.faults.cells import ALL_KILLS, Cell, reason_against

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]


def kill_task(run: TrainingRun, pid: int) -> None:
    """The task's own process."""
    os.kill(pid, signal.SIGKILL)


def kill_supervisor(run: TrainingRun, pid: int) -> None:
    """The worker that started it and tells Airflow of it; the task is left behind and runs on for a while."""
    psutil.Process(pid).parent().kill()  # type: ignore[union-attr]


def kill_scheduler(run: TrainingRun, pid: int) -> None:
    """The scheduler with all its workers and their tasks, as a machine that loses its power."""
    run.stack.kill("scheduler")
    run.stack.start("scheduler")


def cells(what: str) -> list[Any]:
    """The cells of a row of the matrix that make sense, as parameters."""
    return [pytest.param(cell, id=cell.id) for cell in ALL_KILLS if cell.what == what and not reason_against(cell)]


@pytest.mark.parametrize("cell", cells("task killed"))
def test_task_killed(runs: ParallelRuns, cell: Cell) -> None:
    """The next try finds TPU and training, and the run ends green."""
    ends_green_without(kill_task, cell, runs)


@pytest.mark.parametrize("cell", cells("scheduler killed"))
def test_scheduler_killed(runs: ParallelRuns, cell: Cell) -> None:
    """The scheduler that is started next has the task tried again, with the same end."""
    ends_green_without(kill_scheduler, cell, runs)


@pytest.mark.parametrize("where", BRING)
def test_supervisor_killed(runs: ParallelRuns, where: str) -> None:
    """The same when only the worker dies that tells Airflow of the task."""
    ends_green_without(kill_supervisor, Cell(where, "supervisor killed"), runs)


def ends_green_without(kill: Callable[[TrainingRun, int], None], cell: Cell, runs: ParallelRuns) -> None:
    """Kill something in a phase, and see the run end as if nothing had happened."""
    run = runs.new(WORKING, cell.id.replace(": ", "-").replace(" ", "-"))
    task = BRING[cell.where](run)
    kill(run, run.until_process(task))
    on_machine(run, "thaw")
    run.until(task, "running", "success", tries=2)
    assert len(run.alive()) <= 1
    run.let_end()
    ends_green(run)


@pytest.mark.parametrize("cell", cells("triggerer killed"))
def test_triggerer_killed(runs: ParallelRuns, cell: Cell) -> None:
    """Another triggerer continues the wait, the training does not notice, and the run ends green."""
    run = runs.new(TRAIN, cell.id.replace(": ", "-").replace(" ", "-"))
    task = to_train(run, "deferred") if cell.where == "training" else BRING[cell.where](run)
    run.until(task, "deferred")
    first = eventually(lambda: run.triggerer(task), bool, TIMEOUT, POLL)
    runs.stack.kill(first)
    runs.stack.start(first)
    run.let_end()
    ends_green(run)


def test_run_ended_by_its_timeout(runs: ParallelRuns) -> None:
    """No teardown runs then; trigger and deadline alert take the TPU, and the reaper closes the books."""
    run = runs.new(OVERRUN, "overrun")
    run.trigger()
    run.until_training("deferred")
    eventually(lambda: run.state, lambda state: state == "failed", TIMEOUT, POLL)
    assert run.task("delete")["state"] != "success"
    run.expire()
    assert eventually(run.resources, lambda found: not found, TIMEOUT, POLL) == []
    run.reap()
    assert len(run.starts()) == 1
    run.assert_nothing_left()


def test_marked_failed_while_queued(runs: ParallelRuns) -> None:
    """A task that a worker is still to take is not run any more, and the TPU that waits for it is deleted once."""
    run = runs.new(CELERY, "marked-failed-while-queued")
    assert to_wait(run) == "create"
    runs.stack.hold("worker")
    run.until("train", "queued")
    run.mark("train", "failed")
    runs.stack.signal("worker", signal.SIGCONT)
    tasks = run.until_over()
    assert (tasks["create"], tasks["train"], tasks["copy"]) == ("success", "failed", "upstream_failed")
    assert (tasks["delete"], run.state) == ("success", "failed")
    assert run.starts() == []
    run.assert_nothing_left()
