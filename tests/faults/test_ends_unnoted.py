"""A process that dies between a delete and the note of the end has noted before it what it deletes, and why."""

from __future__ import annotations

from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.lifecycle.reap import reap
from tests.airflow_tpu.identities import AIRFLOW
from tests.faults import tasks
from tests.faults.project import RUNS, Project
from tests.faults.test_ends import BOOTED, closed, reaper, run
from tests.faults.virtual_processes import Process

RUN = RUNS[0]


def dies_after_its_delete(project: Project, process: Process) -> None:
    """Kill a process between the delete and the note of the end, and let the delete take effect."""
    while not process.at.startswith("DeleteNode"):
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
