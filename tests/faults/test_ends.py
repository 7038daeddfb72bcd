# SPDX-License-Identifier: Apache-2.0
"""The process that asks for a delete notes the end, the one that sees the TPU gone books it, to the second."""

from __future__ import annotations

import pytest
from google.cloud import tpu_v2

from airflow_tpu.core.ledger.events import Closed, EndReason, TimeSource, event_from_bytes
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import RowInUse
from airflow_tpu.lifecycle.reap import reap
from tests.airflow_tpu.identities import AIRFLOW
from tests.faults import tasks
from tests.faults.project import DEVICES, PARENT, RUNS, Project
from tests.faults.virtual_context import POLL, VirtualContext
from tests.faults.virtual_processes import Process

RUN = RUNS[0]
HOURS = 4 * 3600.0
BOOTED = 300.0
"""Seconds after which a run trains."""

BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


def start(project: Project, queued: bool, key: RunKey = RUN) -> Process:
    """A run that will train for hours, before its first request."""

    def steps(at: VirtualContext) -> None:
        tasks.lease(at, key, queued)
        tasks.train(at, key, queued, HOURS)

    return project.start("run", steps)


def run(project: Project, queued: bool = False) -> Process:
    """A run that trains."""
    process = start(project, queued)
    project.together(BOOTED)
    return process


def kill(project: Project) -> None:
    """Its task is ended by a person: one request, no waiting."""
    held = project.runs[-1]
    process = project.start("on_kill", lambda at: tasks.kill(at, held.key, held.lease.token))
    project.together(0.0)
    assert process.ended


def reaper(project: Project) -> None:
    """A round of the reaper from its first request to its last."""
    process = project.start("reaper", lambda at: reap(at.grant, project.state_of, AIRFLOW))
    project.together(POLL * 8)
    assert process.ended


def by_hand(project: Project, queued: bool) -> None:
    """A person deletes the first TPU of the run in Google's console."""
    if queued:
        name = f"{PARENT}/queuedResources/{RUN.node_id(1)}"
        project.cloud.call("Tpu/DeleteQueuedResource", tpu_v2.DeleteQueuedResourceRequest(name=name, force=True))
    else:
        project.cloud.call("Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/{RUN.node_id(1)}"))


def closed(project: Project) -> list[Closed]:
    """Ends in the ledger, in the order of the incarnations."""
    texts = [text for name, (_, text) in sorted(project.bucket.objects.items()) if name.endswith("/closed.json")]
    return [event for event in map(event_from_bytes, texts) if isinstance(event, Closed)]


def booked(project: Project) -> float:
    """Seconds of the only end."""
    (event,) = closed(project)
    assert event.ready_at is not None
    assert event.ended_at is not None
    return (event.ended_at - event.ready_at).total_seconds()


def test_a_kill_books_nothing(project: Project) -> None:
    """The end is in the lease while the TPU goes; the teardown writes it to the ledger, by the API's clock."""
    process = run(project)
    project.kill(process)
    kill(project)
    assert closed(project) == []
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(BOOTED)
    (event,) = closed(project)
    assert (event.end_reason, event.time_source) == (EndReason.STOPPED, TimeSource.API)
    assert booked(project) == pytest.approx(project.cloud.meter.ready_seconds(event.node_id), abs=1e-3)


def test_a_delete_that_fails_after_a_kill_ends_nothing(project: Project) -> None:
    """The TPU is READY again and charged; what is booked is the end that the teardown brings about, an hour later."""
    process = run(project)
    project.kill(process)
    project.fault("tpu.operation", 1, {"verb": "delete"}, action="error", code=13)
    kill(project)
    project.together(3600.0)
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(BOOTED)
    (event,) = closed(project)
    assert event.time_source is TimeSource.OBSERVED
    assert booked(project) >= project.cloud.meter.ready_seconds(event.node_id) > 3600.0


def test_a_next_try_that_finds_it_alive_takes_the_note_back(project: Project) -> None:
    """A TPU whose delete has failed is adopted; gone by itself later, it has not ended when the old try asked."""
    process = run(project)
    project.kill(process)
    project.fault("tpu.operation", 1, {"verb": "delete"}, action="error", code=13)
    kill(project)
    project.together(BOOTED)
    project.start("train", lambda at: tasks.train(at, RUN, False, HOURS))
    project.together(1800.0)
    project.vanish(0)
    project.together(60.0)
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(BOOTED)
    assert booked(project) > 1800.0
    assert [event.end_reason for event in closed(project)] == [EndReason.VANISHED]


def test_a_sweep_books_what_is_gone(project: Project) -> None:
    """The next try waits until the killed one's TPU is gone; then the end that the killed one has noted is booked."""
    process = run(project)
    project.kill(process)
    kill(project)
    project.start("train", lambda at: tasks.train(at, RUN, False, HOURS))
    project.together(1.0)
    assert closed(project) == []
    project.together(BOOTED)
    (event,) = closed(project)
    assert event.time_source is TimeSource.API
    assert booked(project) == pytest.approx(project.cloud.meter.ready_seconds(event.node_id), abs=1e-3)
    assert len(project.living()) == 1


def test_a_sweep_books_nothing_that_stays(project: Project) -> None:
    """The record of a terminated node that outlasts the wait before the next create stays open until the teardown."""
    process = run(project)
    project.kill(process)
    project.fault("tpu.operation", 1, {"verb": "delete"}, action="error", code=13, after=250.0)
    kill(project)
    project.start("train", lambda at: tasks.train(at, RUN, False, HOURS))
    project.together(240.0)
    assert [one.node_id for one in project.living()] == [RUN.node_id(2)]
    assert closed(project) == []


@BOTH
def test_the_reaper_books_what_is_gone_in_its_round(project: Project, queued: bool) -> None:
    """It waits a little for what it has deleted; the record has the time of the delete, not of the look after it."""
    process = run(project, queued)
    project.kill(process)
    project.states[RUN] = "failed"
    reaper(project)
    (event,) = closed(project)
    assert event.end_reason is EndReason.FINISHED
    extra = booked(project) - project.cloud.meter.ready_seconds(event.node_id)
    assert -1e-3 <= extra <= (POLL if queued else 1e-3)


def test_the_reaper_books_what_takes_longer_in_its_next_round(project: Project) -> None:
    """A delete that takes its time leaves the record open and the lease with the end in it until the next round."""
    process = run(project)
    project.kill(process)
    project.states[RUN] = "failed"
    project.fault("tpu.operation", 1, {"verb": "delete"}, action="error", code=13, after=200.0)
    reaper(project)
    assert closed(project) == []
    assert project.record(RUN) is not None
    project.together(900.0)
    reaper(project)
    (event,) = closed(project)
    assert event.time_source is TimeSource.OBSERVED
    assert booked(project) >= project.cloud.meter.ready_seconds(event.node_id) > 900.0
    assert project.record(RUN) is None


@BOTH
def test_the_reaper_believes_no_old_list(project: Project, queued: bool) -> None:
    """A TPU that became READY while the reaper slept between its lists and its delete is counted, not "never ready"."""
    process = start(project, queued)
    while not project.living():
        project.go(process)
    project.kill(process)
    project.wait(POLL)
    project.states[RUN] = "failed"
    asleep = project.start("reaper", lambda at: reap(at.grant, project.state_of, AIRFLOW))
    project.go(asleep, 3)
    assert asleep.at.startswith("list trc/ledger")
    project.wait(3600.0)
    project.together(POLL * 8)
    assert asleep.ended
    (event,) = closed(project)
    assert event.end_reason is EndReason.FINISHED
    assert booked(project) >= project.cloud.meter.ready_seconds(event.node_id) > 3000.0


def test_an_end_is_kept_although_nobody_saw_it_ready(project: Project) -> None:
    """A TPU that became READY unseen and was ended by a person is counted from its request, by any process."""
    process = start(project, queued=False)
    while not project.living():
        project.go(process)
    project.kill(process)
    project.together(BOOTED)
    kill(project)
    project.together(60.0)
    project.states[RUN] = "failed"
    reaper(project)
    (event,) = closed(project)
    assert booked(project) >= project.cloud.meter.ready_seconds(event.node_id) > 0.0


def test_a_lease_that_is_gone_keeps_no_end(project: Project) -> None:
    """Without a lease the process that ends a TPU books it at once, with its cause: no other could know it later."""
    process = run(project)
    project.kill(process)
    del project.bucket.objects[f"trc/leases/{RUN.name}.json"]
    kill(project)
    (event,) = closed(project)
    assert (event.end_reason, event.lost_seconds) == (EndReason.STOPPED, None)


def test_an_overtaken_try_notes_no_end(project: Project) -> None:
    """A try that has lost the lease does not know which incarnation is lost: the newer one notes it."""
    process = start(project, queued=False)
    while not project.living():
        project.go(process)
    project.together(1.0)
    project.wait(BOOTED)
    project.go(project.start("lease", lambda at: tasks.lease(at, RUN, False)), 20)
    project.vanish(0)
    project.together(60.0)
    assert process.ended
    record = project.record(RUN)
    assert record is not None
    assert [node_id for node_id, life in record.lives.items() if life.ended_at] == []


def test_processes_end_in_an_order_of_their_own(project: Project) -> None:
    """Kill, teardown and reaper at the same time: one end, by the API's clock."""
    process = run(project)
    project.kill(process)
    held, project.states[RUN] = project.runs[-1], "failed"
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.start("on_kill", lambda at: tasks.kill(at, held.key, held.lease.token))
    project.start("reaper", lambda at: reap(at.grant, project.state_of, AIRFLOW))
    project.together(BOOTED)
    assert project.processes == []
    (event,) = closed(project)
    assert event.end_reason is EndReason.STOPPED
    metered = project.cloud.meter.ready_seconds(event.node_id)
    assert -1e-3 <= booked(project) - metered <= POLL


# -- lists that are behind -------------------------------------------------------------------------------------------


@BOTH
def test_what_no_list_shows_is_adopted(project: Project, queued: bool) -> None:
    """A try whose predecessor died right after its create finds the TPU by its name, and creates no second one."""
    project.fault("tpu.list", 2, {"event": "create"}, seconds=600.0)
    process = run(project, queued)
    project.kill(process)
    project.start("train", lambda at: tasks.train(at, RUN, queued, HOURS))
    project.together(60.0)
    assert [one.node_id for one in project.living()] == [RUN.node_id(1)]
    assert closed(project) == []


@BOTH
def test_what_no_list_shows_is_deleted_by_the_teardown(project: Project, queued: bool) -> None:
    """The record leads to the TPU; it is closed when that is gone, not because no list has it."""
    project.fault("tpu.list", 2, {"event": "create"}, seconds=3600.0)
    process = run(project, queued)
    project.kill(process)
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(BOOTED)
    assert project.living() == []
    (event,) = closed(project)
    assert event.end_reason is EndReason.FINISHED
    assert booked(project) >= project.cloud.meter.ready_seconds(event.node_id) - 1e-3


@BOTH
def test_what_no_list_shows_is_ended_by_a_kill(project: Project, queued: bool) -> None:
    """A person who ends a task within the lists' delay ends its TPU."""
    project.fault("tpu.list", 2, {"event": "create"}, seconds=3600.0)
    process = run(project, queued)
    project.kill(process)
    kill(project)
    project.together(120.0)
    assert project.living() == []


@BOTH
def test_the_reaper_sees_what_no_list_shows(project: Project, queued: bool) -> None:
    """An unlisted TPU keeps record, lease and chips while its run continues, and loses them when the run ends."""
    project.fault("tpu.list", 2, {"event": "create"}, seconds=36000.0)
    process = run(project, queued)
    project.kill(process)
    reaper(project)
    assert (len(project.living()), closed(project)) == (1, [])
    assert project.record(RUN) is not None
    assert RUN.digest in project.bucket.objects["airflow-tpu-shared/local-project/reservations.json"][1]
    project.states[RUN] = "failed"
    reaper(project)
    assert project.living() == []
    assert len(closed(project)) == 1
    assert project.record(RUN) is None


@BOTH
def test_a_ghost_is_not_adopted(project: Project, queued: bool) -> None:
    """A TPU that lists still show as READY after a person has deleted it is replaced, and its end is booked."""
    process = run(project, queued)
    project.kill(process)
    project.fault("tpu.list", 2, {"event": "delete"}, seconds=100.0)
    by_hand(project, queued)
    project.together(60.0)
    project.start("train", lambda at: tasks.train(at, RUN, queued, HOURS))
    project.together(2 * BOOTED)
    assert [one.node_id for one in project.living()] == [RUN.node_id(2)]
    assert len(closed(project)) == 1


def test_a_ghost_prolongs_nothing(project: Project) -> None:
    """A list that still says READY after the delete does not move the end: what is booked is the first delete."""
    process = run(project)
    project.kill(process)
    project.fault("tpu.list", 1, {"event": "delete"}, seconds=200.0)
    project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(2 * BOOTED)
    (event,) = closed(project)
    assert event.time_source is TimeSource.API
    assert booked(project) == pytest.approx(project.cloud.meter.ready_seconds(event.node_id), abs=1e-3)


def test_chips_of_a_ghost_are_given_back_when_the_lists_agree(project: Project) -> None:
    """A run that gets a device back from the grant is not refused because a list still shows who had it before."""
    runs = {}
    for key in RUNS[:DEVICES]:
        runs[key] = start(project, queued=False, key=key)
    project.together(BOOTED)
    project.kill(runs[RUN])
    project.fault("tpu.list", 1, {"event": "delete"}, seconds=200.0)
    teardown = project.start("teardown", lambda at: tasks.end(at, RUN))
    project.together(60.0)
    assert not teardown.ended
    project.together(BOOTED)
    assert teardown.ended
    last = start(project, queued=False, key=RUNS[DEVICES])
    project.together(BOOTED)
    assert last.error is None
    assert {one.run for one in project.living()} == {key.digest for key in RUNS[1:]}


def test_a_device_that_no_list_shows_is_taken(project: Project) -> None:
    """A run that asks while the devices of others are in no list yet gets none of them: they are reserved."""
    project.fault("tpu.list", DEVICES, {"event": "create"}, seconds=3600.0)
    for key in RUNS[:DEVICES]:
        start(project, queued=False, key=key)
    project.together(BOOTED)
    last = start(project, queued=False, key=RUNS[DEVICES])
    project.together(BOOTED)
    assert isinstance(last.error, RowInUse)
    assert len(project.living()) == DEVICES


def test_a_ghost_is_no_failure_of_the_reaper(project: Project) -> None:
    """A round that meets what is gone already closes its record and reports no failed delete."""
    process = run(project)
    project.kill(process)
    kill(project)
    project.fault("tpu.list", 1, {"event": "delete"}, seconds=200.0)
    project.together(60.0)
    project.states[RUN] = "failed"
    reaper(project)
    (event,) = closed(project)
    assert booked(project) == pytest.approx(project.cloud.meter.ready_seconds(event.node_id), abs=1e-3)
