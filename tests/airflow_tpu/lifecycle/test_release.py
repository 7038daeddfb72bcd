# SPDX-License-Identifier: Apache-2.0
"""Give the TPU back: what is deleted, what is left alone, and what the ledger says afterwards."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu import protocol
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import Closed, EndReason, TimeSource
from airflow_tpu.core.run.job import LastAttempt
from airflow_tpu.core.run.plan import checkpoints_uri
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import RunKey, labels
from airflow_tpu.errors import AccessDenied, TPUPreempted, TransientError
from airflow_tpu.lifecycle.ends.deletion import delete_seen
from airflow_tpu.lifecycle.ends.records import announce, close_ended, close_incarnations
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.release import abandon, close_lost, end_overdue
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.teardown import teardown as end_run
from airflow_tpu.lifecycle.training.losses import Ended
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.polling import Waiting
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.lifecycle.waits.target import Target
from localcloud.rules.settings import Latencies
from localcloud.testing import TIMEOUT
from tests.airflow_tpu.attempts import ready as attempt_ready
from tests.airflow_tpu.attempts import run_context
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, now, poll_policy, request_delete
from tests.airflow_tpu.conftest import Open
from tests.airflow_tpu.identities import AIRFLOW

FIRST = KEY.node_id(1)
BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


async def ready(env: CloudEnv, client: TPUClient, queued: bool = False, key: RunKey = KEY) -> Target:
    """A READY TPU whose lease knows since when."""
    target = await env.ensure(client, queued, key)
    arrival = await until_ready(client, target, poll_policy())
    env.runs.update(
        env.runs.read(key),
        lambda record: record.with_life(target.node_id, ready_at=arrival.ready_at, source=arrival.source),
    )
    return target


async def teardown(env: CloudEnv, client: TPUClient) -> None:
    """What the delete task does: ask, keep the books, wait."""
    endings = await request_delete(client, KEY)
    close_incarnations(env.ledger, env.runs.read(KEY), KEY, endings)
    await until_gone(client, KEY, poll_policy())


def closed(env: CloudEnv) -> Closed:
    """The one *closed* event."""
    (event,) = (event for event in env.ledger.events(KEY) if isinstance(event, Closed))
    return event


def charged(event: Closed) -> float:
    """READY seconds as the ledger has them."""
    if event.ready_at is None or event.ended_at is None:
        return 0.0
    return (event.ended_at - event.ready_at).total_seconds()


@BOTH
async def test_finished_tpu_is_deleted_and_its_record_closed(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """Nothing is left, and the ledger counts at least what the meter counted, to the second by the API's clock."""
    await ready(env, client, queued)
    await teardown(env, client)
    assert (env.nodes(), env.queued()) == ({}, {})
    event = closed(env)
    assert event.end_reason is EndReason.FINISHED
    assert event.time_source is (TimeSource.OBSERVED if queued else TimeSource.API)
    assert charged(event) >= env.ready_seconds() - 0.05
    assert queued or charged(event) == pytest.approx(env.ready_seconds(), abs=0.5)


@BOTH
async def test_preempted_tpu_is_charged_until_it_was_noticed(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """A terminated node is deleted and recorded as preempted, whatever its queued resource has done to it."""
    await ready(env, client, queued)
    env.cloud.preempt(FIRST)
    await teardown(env, client)
    assert (env.nodes(), env.queued()) == ({}, {})
    assert closed(env).end_reason is EndReason.PREEMPTED
    assert charged(closed(env)) >= env.ready_seconds() - 0.05


@BOTH
async def test_tpu_that_never_came_costs_nothing(open_env: Open, queued: bool) -> None:
    """A TPU deleted on its way was never READY and counts zero seconds."""
    env = open_env(latencies=Latencies(creating=600.0))
    async with env.client() as client:
        await env.provisioner(client, env.order(queued), env.lease()).ensure()
        await teardown(env, client)
    assert (env.nodes(), env.queued()) == ({}, {})
    assert closed(env).end_reason is EndReason.NEVER_READY
    assert charged(closed(env)) == env.ready_seconds() == 0.0


async def test_ready_unseen_counts_from_the_request(env: CloudEnv, client: TPUClient) -> None:
    """A node that became READY after the last look counts from its request: never too little."""
    target = await env.provisioner(client, env.order(), env.lease()).ensure()
    await until_ready(client, target, poll_policy())
    await teardown(env, client)
    event = closed(env)
    assert (event.end_reason, event.time_source) == (EndReason.FINISHED, TimeSource.OBSERVED)
    assert charged(event) >= env.ready_seconds() > 0.0


async def test_deleted_by_hand_is_recorded_as_vanished(env: CloudEnv, client: TPUClient) -> None:
    """The record of a TPU that a person has deleted is closed when that is noticed."""
    target = await ready(env, client)
    await client.delete_node(target.node)
    await until_gone(client, KEY, poll_policy())
    await teardown(env, client)
    assert closed(env).end_reason is EndReason.VANISHED
    assert charged(closed(env)) >= env.ready_seconds()


@BOTH
async def test_repeated_teardown_writes_the_same_ledger(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """A second teardown deletes nothing, fails at nothing and changes no byte of the ledger."""
    await ready(env, client, queued)
    await teardown(env, client)
    before = _ledger(env)
    await teardown(env, client)
    assert await request_delete(client, KEY) == []
    assert _ledger(env) == before
    assert len(before) == 2


def _ledger(env: CloudEnv) -> dict[str, int]:
    return {item.name: item.generation for item in env.storage.listing(f"{env.ledger.root}/ledger/")}


async def test_another_attempt_s_token_opens_nothing(env: CloudEnv, client: TPUClient) -> None:
    """A delete is fenced: with a foreign token nothing happens, with the own one the TPU goes."""
    await ready(env, client)
    assert await request_delete(client, KEY, "0123456789abcdef") == []
    assert env.nodes() == {FIRST: "READY"}
    await request_delete(client, KEY, env.runs.read(KEY).lease.token)
    await until_gone(client, KEY, poll_policy())
    assert env.nodes() == {}


async def test_others_are_left_alone(env: CloudEnv, client: TPUClient) -> None:
    """Neither another run of ours nor a colleague's look-alike is touched."""
    other = RunKey(AIRFLOW, KEY.dag_id, "manual__2026-01-02T00:00:00+00:00")
    await ready(env, client)
    await ready(env, client, key=other)
    env.foreign_node(f"{KEY.name}-9", labels={"airflow-tpu-run": KEY.digest})
    await teardown(env, client)
    assert set(env.nodes()) == {other.node_id(1), f"{KEY.name}-9"}


async def test_unreachable_zone_raises_after_deleting_the_rest(env: CloudEnv, client: TPUClient) -> None:
    """What can be deleted is deleted; the error says that the silent zone is unknown."""
    await ready(env, client)
    env.cloud.add_fault("tpu.zone", {"zone": "us-east1-d"}, times=2, action="unreachable")
    with pytest.raises(TransientError, match="us-east1-d"):
        await request_delete(client, KEY)
    await until_gone(client, KEY, poll_policy())
    assert env.nodes() == {}


async def test_one_failed_delete_does_not_stop_the_rest(env: CloudEnv, client: TPUClient) -> None:
    """Of three nodes the first cannot be deleted: the others go, and the failure is raised."""
    for number in (1, 2, 3):
        stamp = replace(env.lease().stamp, incarnation=number)
        env.foreign_node(KEY.node_id(number), labels(KEY, stamp))
    env.cloud.add_fault("tpu.call", {"method": "DeleteNode"}, action="error", code=7, message="not yours")
    with pytest.raises(AccessDenied, match="not yours"):
        await request_delete(client, KEY)
    assert len(env.calls("DeleteNode")) == 3
    await until_gone(client, KEY, poll_policy())
    assert env.nodes() == {}


async def test_gone_between_list_and_delete_is_done(env: CloudEnv, client: TPUClient) -> None:
    """What another process has deleted already is no error."""
    target = await ready(env, client)
    snapshot = await take_snapshot(client)
    await client.delete_node(target.node)
    await until_gone(client, KEY, poll_policy())
    done = await delete_seen(client, snapshot, KEY)
    assert done.failures == []


async def test_only_what_ended_is_closed(env: CloudEnv, client: TPUClient) -> None:
    """While a next incarnation lives, only the record of the ended one is closed."""
    await ready(env, client)
    first = env.runs.read(KEY)
    endings = await request_delete(client, KEY)
    await until_gone(client, KEY, poll_policy())
    close_ended(env.ledger, first, KEY, [])
    assert [event for event in env.ledger.events(KEY) if isinstance(event, Closed)] == []
    close_ended(env.ledger, first, KEY, endings)
    assert closed(env).node_id == FIRST


async def test_books_can_be_kept_without_the_lease(env: CloudEnv, client: TPUClient) -> None:
    """With the lease object lost the record is still closed, from its request on."""
    await ready(env, client)
    endings = await request_delete(client, KEY)
    close_incarnations(env.ledger, None, KEY, endings)
    await until_gone(client, KEY, poll_policy())
    assert closed(env).end_reason is EndReason.FINISHED
    assert charged(closed(env)) >= env.ready_seconds() > 0.0


def trains(work: RunContext, minutes: float) -> RunRecord:
    """The TPU of the run is READY, and its script was started so long ago."""
    began = now() - dt.timedelta(minutes=minutes)
    record = work.stores.runs.read(KEY)
    return work.stores.runs.update(
        record, lambda found: found.with_life(FIRST, ready_at=began).next_attempt(LastAttempt(node_id=FIRST, at=began))
    )


@pytest.mark.parametrize("saved", [None, 6.0])
async def test_a_training_that_a_person_ends_was_stopped(env: CloudEnv, client: TPUClient, saved: float | None) -> None:
    """The ledger says so, and how much work is lost: since the newest checkpoint, or since the start without one."""
    work = run_context()
    record = trains(work, 10.0) if await attempt_ready(work, client) else None
    assert record is not None
    if saved is not None:
        manifest = {"step": 7, "created": (now() - dt.timedelta(minutes=saved)).timestamp()}
        folder = f"{checkpoints_uri(work.conf, KEY.name)}/attempt-1/000000000007.step-7"
        env.storage.write_json(f"{folder}/{protocol.CHECKPOINT_MANIFEST}", manifest)
    await asyncio.to_thread(abandon, work, record.lease.token, 10.0)
    await asyncio.to_thread(end_run, work, Waiting(0.05, None))
    event = closed(env)
    assert event.end_reason is EndReason.STOPPED
    assert event.training_seconds >= 600.0
    assert event.lost_seconds is not None
    assert 0.0 <= event.lost_seconds - 60.0 * (saved or 10.0) < TIMEOUT


async def test_a_kill_that_was_overtaken_notes_nothing(env: CloudEnv, client: TPUClient) -> None:
    """A newer attempt has taken the lease since the old one read it: how its TPU ends is not the old one's to say."""
    work = run_context()
    old = await attempt_ready(work, client)
    env.lease()
    record = announce(work.stores.runs, KEY, {FIRST}, old.lease.token)
    assert record is not None
    assert (record.life(FIRST).cause, record.life(FIRST).deleting) == (None, False)


async def test_a_training_that_its_deadline_ends_was_deleted(env: CloudEnv, client: TPUClient) -> None:
    """The alert at the deadline takes the TPU from a script that runs: what that has lost is not 0 seconds."""
    work = run_context()
    await attempt_ready(work, client)
    record = trains(work, 10.0)
    work.stores.runs.update(record, lambda found: replace(found, lease=replace(found.lease, expires_at=now())))
    await asyncio.to_thread(end_overdue, work, KEY)
    await asyncio.to_thread(end_run, work, Waiting(0.05, None))
    event = closed(env)
    assert event.end_reason is EndReason.DELETED
    assert event.lost_seconds is not None
    assert event.lost_seconds >= 600.0


async def test_loss_of_an_attempt_that_was_started_after_the_record_was_read(env: CloudEnv, client: TPUClient) -> None:
    """The ledger has the work of the attempt that this very try has started, not that of the record it began with."""
    work = run_context()
    stale = await attempt_ready(work, client)
    began = now() - dt.timedelta(minutes=10)
    work.stores.runs.update(
        stale, lambda found: found.with_life(FIRST, ready_at=began).next_attempt(LastAttempt(node_id=FIRST, at=began))
    )
    seen = began + dt.timedelta(seconds=351)
    close_lost(work, stale, Ended(FIRST, TPUPreempted("gone", seen), seen))
    event = closed(env)
    assert (event.end_reason, event.training_seconds, event.lost_seconds) == (EndReason.PREEMPTED, 351.0, 351.0)
