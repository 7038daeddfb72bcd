# SPDX-License-Identifier: Apache-2.0
"""A process that dies between a delete and the note of the end has noted before it what it deletes, and why."""

from __future__ import annotations

import pytest

from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.run.job import LastAttempt
from airflow_tpu.errors import (
    AcceleratorMissing,
    DeadlineExceeded,
    HostKeyMismatch,
    HostLost,
    RunStalled,
    TPUError,
)
from airflow_tpu.lifecycle.ensure_tpu import Ready, ensure_tpu
from airflow_tpu.lifecycle.reap import reap
from airflow_tpu.lifecycle.release import give_back
from tests.airflow_tpu.identities import AIRFLOW
from tests.faults import tasks
from tests.faults.project import RUNS, Project
from tests.faults.test_ends import BOOTED, BOTH, closed, reaper, run
from tests.faults.virtual_context import TO_THE_END, VirtualContext
from tests.faults.virtual_processes import Process

RUN = RUNS[0]


def dies_after_its_delete(project: Project, process: Process) -> None:
    """Kill a process between the delete and the note of the end, and let the delete take effect."""
    while not process.at.startswith("Delete"):
        project.go(process)
    project.go(process)
    project.kill(process)
    project.together(BOOTED)


def test_a_kill_that_dies_before_its_note(project: Project) -> None:
    """A worker has five seconds: the reason is there already when the delete has just been asked for."""
    project.kill(run(project))
    held = project.runs[-1]
    dies_after_its_delete(project, project.start("on_kill", lambda at: tasks.kill(at, held.key, held.lease.token)))
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(BOOTED)
    assert [event.end_reason for event in closed(project)] == [EndReason.STOPPED]


def test_a_reaper_that_dies_before_its_note(project: Project) -> None:
    """The next round finds the TPU gone, as the last one has deleted it: it has not vanished."""
    project.kill(run(project))
    project.states[RUN] = "failed"
    dies_after_its_delete(project, project.start("reaper", lambda at: reap(at.grant, project.state_of, AIRFLOW)))
    assert closed(project) == []
    reaper(project)
    assert [event.end_reason for event in closed(project)] == [EndReason.FINISHED]


def trains(project: Project, queued: bool, error: TPUError) -> Process:
    """A try that has trained for ten minutes, and gives its TPU up for an error when it is awake again."""

    def steps(at: VirtualContext) -> None:
        tasks.lease(at, RUN, queued)
        run = at.run(RUN, queued)
        found = ensure_tpu(run, run.stores.runs.read(RUN), TO_THE_END)
        assert isinstance(found, Ready)
        begun = LastAttempt(node_id=found.node.id, at=run.clock.now())
        run.stores.runs.update(found.record, lambda now: now.next_attempt(begun))
        at.process.sleep(2 * BOOTED)
        give_back(run, found.record, error, holds_lease=True)

    process = project.start("train", steps)
    project.together(BOOTED)
    project.wait(2 * BOOTED)
    return process


@BOTH
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (HostLost("silent for too long"), EndReason.FAILED),
        (AcceleratorMissing("exit 69"), EndReason.FAILED),
        (RunStalled("no progress"), EndReason.FAILED),
        (HostKeyMismatch("another machine"), EndReason.FAILED),
        (DeadlineExceeded("the deadline has passed"), EndReason.DELETED),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, TPUError) else "",
)
def test_a_failed_try_that_dies_before_its_note(
    project: Project, queued: bool, error: TPUError, reason: EndReason
) -> None:
    """A TPU that a try gives up ends for the error of that try, also where nobody could say so after the delete."""
    dies_after_its_delete(project, trains(project, queued, error))
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(BOOTED)
    assert [event.end_reason for event in closed(project)] == [reason]


@BOTH
def test_a_next_try_that_dies_before_its_note(project: Project, queued: bool) -> None:
    """A terminated node that a try deletes before it makes another one was preempted, and did not vanish."""
    project.kill(run(project, queued))
    project.preempt(0, notice=0.0)
    project.wait(2 * BOOTED)
    dies_after_its_delete(project, project.start("train", lambda at: tasks.train(at, RUN, queued, 1.0)))
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(BOOTED)
    assert [event.end_reason for event in closed(project)] == [EndReason.PREEMPTED]


@BOTH
def test_a_reaper_that_dies_after_it_has_deleted_a_terminated_node(project: Project, queued: bool) -> None:
    """Google has taken the TPU back: the next round, which finds nothing, says so."""
    project.kill(run(project, queued))
    project.preempt(0, notice=0.0)
    project.wait(2 * BOOTED)
    project.states[RUN] = "failed"
    dies_after_its_delete(project, project.start("reaper", lambda at: reap(at.grant, project.state_of, AIRFLOW)))
    reaper(project)
    assert [event.end_reason for event in closed(project)] == [EndReason.PREEMPTED]


@pytest.mark.parametrize("error", [HostLost("silent"), RunStalled("no progress")], ids=lambda one: type(one).__name__)
def test_a_failed_try_without_a_lease(project: Project, error: TPUError) -> None:
    """Where no lease is left to keep it, the end is booked at once, and for the error of the try."""
    process = trains(project, False, error)
    del project.bucket.objects[f"trc/leases/{RUN.name}.json"]
    project.together(BOOTED)
    assert process.ended
    assert [event.end_reason for event in closed(project)] == [EndReason.FAILED]


def test_a_reaper_that_finds_no_lease(project: Project) -> None:
    """A TPU that no lease holds has not finished for all that is known: the reaper has deleted it."""
    project.kill(run(project))
    del project.bucket.objects[f"trc/leases/{RUN.name}.json"]
    reaper(project)
    (event,) = closed(project)
    assert (event.end_reason, event.lost_seconds) == (EndReason.DELETED, None)
