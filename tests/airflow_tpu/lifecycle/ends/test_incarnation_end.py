# SPDX-License-Identifier: Apache-2.0
"""The end of a TPU whose delete fails, is tried again, or is watched by a process that dies meanwhile."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core import json_form
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.run.run_record import RUN_RECORD_FORM, Lease, RunRecord
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Tier, TPUView
from airflow_tpu.errors import AccessDenied
from airflow_tpu.lifecycle.ends.deletion import delete_seen
from airflow_tpu.lifecycle.ends.end_reasons import endings_of
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd, closing, noted, noted_ends, settled
from airflow_tpu.lifecycle.ends.records import close_incarnations
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot, take_snapshot
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.ready import until_ready
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, poll_policy

FIRST = KEY.node_id(1)
NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
LATER = NOON + dt.timedelta(minutes=1)
RECORD = RunRecord(KEY, Lease("token", NOON + dt.timedelta(hours=6)), "us-central1-f").with_life(FIRST, ready_at=NOON)


OPENED = Opened(FIRST, KEY.digest, "d", "r", "p", "us-central1-f", "v2-8", 8, Tier.SPOT, "node", 1, "v2", "", NOON)


def ending(reason: EndReason, at: dt.datetime = NOON) -> IncarnationEnd:
    """An end by the API's clock."""
    return IncarnationEnd(FIRST, at, reason, TimeSource.API)


async def test_a_delete_that_fails_ends_nothing(env: CloudEnv, client: TPUClient) -> None:
    """A TPU that is READY again after a failed delete is charged in the ledger until the delete that succeeds."""
    target = await env.provisioner(client, env.order(), env.lease()).ensure()
    arrival = await until_ready(client, target, poll_policy())
    record = env.runs.update(
        env.runs.read(KEY), lambda now: now.with_life(FIRST, ready_at=arrival.ready_at, source=arrival.source)
    )
    env.cloud.add_fault("tpu.operation", {"verb": "delete"}, action="error", code=13)
    asked = await delete_seen(client, await take_snapshot(client), KEY)
    (first,) = asked.endings
    await until_gone(client, KEY, poll_policy(), asked)
    close_incarnations(env.ledger, record, KEY, asked.endings)
    (event,) = (event for event in env.ledger.events(KEY) if isinstance(event, Closed))
    assert event.ready_at is not None
    assert event.ended_at is not None
    assert event.ended_at > first.at
    assert event.end_reason is EndReason.FINISHED
    assert (event.ended_at - event.ready_at).total_seconds() >= env.ready_seconds() - 0.001


@pytest.mark.parametrize("reason", [EndReason.FINISHED, EndReason.FAILED, EndReason.PREEMPTED])
def test_alive_again_is_a_new_end(reason: EndReason) -> None:
    """A process that finds a TPU alive, or lost, after a failed delete knows its end better, but not to the second."""
    later = replace(ending(reason, LATER), source=TimeSource.OBSERVED)
    assert settled([ending(EndReason.FINISHED)], [ending(reason, LATER)]) == [later]


def test_notes_may_come_the_other_way_round() -> None:
    """What one process has seen before is no news to what another has seen after it, whoever writes first."""
    first, last = ending(EndReason.FINISHED), ending(EndReason.FINISHED, LATER)
    assert settled([last], [first]) == [last]
    assert settled([ending(EndReason.DELETED, LATER)], [first]) == [first]


@pytest.mark.parametrize("reason", [EndReason.DELETED, EndReason.NEVER_READY, EndReason.VANISHED])
def test_our_own_delete_is_no_new_end(reason: EndReason) -> None:
    """A node that is DELETING because we asked for it has ended when we asked."""
    assert settled([ending(EndReason.FINISHED)], [ending(reason, LATER)]) == [ending(EndReason.FINISHED)]


def test_a_preempted_tpu_has_ended() -> None:
    """A terminated node that cannot be deleted at once does not live on in the ledger."""
    first = ending(EndReason.PREEMPTED)
    assert settled([first], [ending(EndReason.PREEMPTED, LATER)]) == [first]


def test_a_noted_end_outlives_who_noted_it() -> None:
    """The next try, and the reaper, find the end in the lease, whatever they still see of the TPU themselves."""
    record = RUN_RECORD_FORM.from_json(RUN_RECORD_FORM.to_json(noted(RECORD, [ending(EndReason.FINISHED, LATER)])))
    assert noted_ends(record) == [ending(EndReason.FINISHED, LATER)]
    for seen in (None, ending(EndReason.DELETED, LATER + dt.timedelta(hours=1))):
        event = closing(OPENED, record, seen, LATER + dt.timedelta(hours=2))
        assert (event.end_reason, event.ended_at) == (EndReason.FINISHED, LATER)


@pytest.mark.parametrize("reason", [EndReason.FINISHED, EndReason.STOPPED, EndReason.PREEMPTED, EndReason.DELETED])
def test_without_a_lease_lost_work_is_unknown(reason: EndReason) -> None:
    """Nobody knows whether a script ran there, so no loss of 0 seconds is claimed, however the TPU has ended."""
    assert closing(OPENED, None, ending(reason, LATER), LATER).lost_seconds is None


@pytest.mark.parametrize(
    ("hours", "began_at", "reason"),
    [
        (0.5, None, EndReason.VANISHED),
        (1.5, None, EndReason.DELETED),
        (1.5, LATER, EndReason.VANISHED),
        (6.5, LATER, EndReason.DELETED),
    ],
)
@pytest.mark.parametrize("ready_at", [NOON, None])
def test_what_the_tpu_itself_has_deleted_did_not_vanish(
    hours: float, began_at: dt.datetime | None, ready_at: dt.datetime | None, reason: EndReason
) -> None:
    """Nobody has noted an end: the guard on the VM acts when no run has come within an hour, and after the deadline."""
    record = RECORD.with_life(FIRST, ready_at=ready_at, began_at=began_at)
    event = closing(OPENED, record, None, NOON + dt.timedelta(hours=hours))
    assert event.end_reason is reason


def test_an_end_crosses_the_trigger() -> None:
    """What a trigger hands to its task is the same end."""
    failed = ending(EndReason.FAILED)
    assert json_form.from_json(IncarnationEnd, json.loads(json.dumps(json_form.to_json(failed)))) == failed


@pytest.mark.parametrize(
    ("state", "reason"),
    [("READY", EndReason.VANISHED), ("PREEMPTED", EndReason.PREEMPTED), ("CREATING", EndReason.NEVER_READY)],
)
def test_what_is_gone_when_it_is_deleted_was_not_alive(state: str, reason: EndReason) -> None:
    """A list that is behind says nothing new of a TPU that the API no longer knows: its noted end stays."""
    node = TPUView(node_name("p", "us-central1-f", FIRST), state)
    (end,) = endings_of(ProjectSnapshot((node,), (), ()), {FIRST: None}, LATER)
    assert end.reason is reason
    assert settled([ending(EndReason.DELETED)], [end])[0].reason in (EndReason.DELETED, EndReason.PREEMPTED)


def test_a_refused_delete_is_no_end() -> None:
    """What could not be deleted lives on."""
    node = TPUView(node_name("p", "us-central1-f", FIRST), "READY")
    assert list(endings_of(ProjectSnapshot((node,), (), ()), {FIRST: AccessDenied("no")}, LATER)) == []
