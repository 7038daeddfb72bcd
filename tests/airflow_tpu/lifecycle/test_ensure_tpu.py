# SPDX-License-Identifier: Apache-2.0
"""One lease, one living TPU: adopted where there is one, created where there is none."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened
from airflow_tpu.core.tpu.labels import RunKey, labels, token_of
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.errors import AccessDenied, GrantViolation, LeaseLost, NameTaken, StockOut
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.lifecycle.waits.target import Target
from localcloud.rules.settings import Latencies
from tests.airflow_tpu.cloud_env import KEY, ROOT, ZONE, CloudEnv, poll_policy, request_delete
from tests.airflow_tpu.conftest import Open
from tests.airflow_tpu.identities import AIRFLOW

FIRST, SECOND = KEY.node_id(1), KEY.node_id(2)
NODE, REPLACEMENT = (node_name("local-project", ZONE, node_id) for node_id in (FIRST, SECOND))
BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


async def ready(env: CloudEnv, client: TPUClient, queued: bool = False) -> Target:
    """Ensure a TPU and wait until it is READY."""
    target = await env.ensure(client, queued)
    await until_ready(client, target, poll_policy())
    return target


def opened(env: CloudEnv) -> list[str]:
    """Incarnations the ledger knows of."""
    return sorted(event.node_id for event in env.ledger.events(KEY) if isinstance(event, Opened))


def closed(env: CloudEnv) -> dict[str, Closed]:
    """Ended incarnations by node id."""
    return {event.node_id: event for event in env.ledger.events(KEY) if isinstance(event, Closed)}


@BOTH
async def test_first_incarnation_is_created_and_recorded(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """The TPU has the derived name, and its record is in the ledger with what covers it."""
    target = await ready(env, client, queued)
    assert target.node == NODE
    (event,) = env.ledger.events(KEY)
    assert isinstance(event, Opened)
    assert (event.node_id, event.chips, event.provisioning == "queued-resource") == (FIRST, 4, queued)
    assert event.allowance is not None
    assert env.runs.read(KEY).incarnation == 1


async def test_record_is_written_before_the_create_call(env: CloudEnv, client: TPUClient) -> None:
    """A create that fails has left its record: what may exist is always known."""
    env.cloud.add_fault("tpu.call", {"method": "CreateNode"}, action="error", code=7, message="no")
    with pytest.raises(AccessDenied):
        await env.ensure(client)
    assert opened(env) == [FIRST]
    assert env.nodes() == {}


async def test_nothing_is_created_outside_the_grant(env: CloudEnv, client: TPUClient) -> None:
    """Without a permit there is no call, no record and no incarnation."""
    order = env.order(zone="us-central1-b")
    with pytest.raises(GrantViolation, match=r"; nothing was created:\n.*us-central1-b"):
        await env.provisioner(client, order, env.lease()).ensure()
    assert env.calls("CreateNode") == []
    assert opened(env) == []
    assert env.runs.read(KEY).incarnation == 0


async def test_lost_lease_creates_nothing(env: CloudEnv, client: TPUClient) -> None:
    """An attempt that was overtaken while it looked around does not create a second TPU."""
    older = env.lease()
    env.lease()
    with pytest.raises(LeaseLost):
        await env.provisioner(client, env.order(), older).ensure()
    assert env.calls("CreateNode") == []


@BOTH
async def test_second_try_adopts_what_is_there(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """A second try of one attempt finds the TPU by its labels and creates nothing."""
    provisioner = env.provisioner(client, env.order(queued), env.lease())
    first = await provisioner.ensure()
    await until_ready(client, first, poll_policy())
    again = await provisioner.ensure()
    assert (again.node, again.queued) == (first.node, first.queued)
    assert len(env.calls("CreateNode")) + len(env.calls("CreateQueuedResource")) == 1
    assert opened(env) == [FIRST]


async def test_waiting_queued_resource_is_adopted(env: CloudEnv, client: TPUClient) -> None:
    """A request that is still in the queue keeps its place there."""
    env.cloud.add_fault("queued.timeline", wait="forever")
    first = await env.ensure(client, queued=True)
    again = await env.ensure(client, queued=True)
    assert again.queued == first.queued == NODE.queued
    assert list(env.queued()) == [FIRST]


async def test_newer_attempt_fences_the_older_one(env: CloudEnv, client: TPUClient) -> None:
    """The adopting attempt writes its token on the node; the older one's late kill deletes nothing."""
    await ready(env, client)
    older = env.runs.read(KEY)
    await env.ensure(client)
    newer = env.runs.read(KEY)
    node = await client.node(NODE)
    assert node.labels == labels(KEY, replace(newer.stamp, root=ROOT))
    assert await request_delete(client, KEY, older.lease.token) == []
    assert env.nodes() == {FIRST: "READY"}


@BOTH
async def test_terminated_node_is_deleted_and_the_next_one_created(
    env: CloudEnv, client: TPUClient, queued: bool
) -> None:
    """After a preemption there is one TPU, the next; the ledger ends the first when it was taken away."""
    await ready(env, client, queued)
    _remember_ready(env)
    env.cloud.preempt(FIRST)
    target = await ready(env, client, queued)
    assert target.node_id == SECOND
    assert env.nodes() == {SECOND: "READY"}
    assert opened(env) == [FIRST, SECOND]
    end = closed(env)[FIRST]
    assert (end.end_reason, list(closed(env))) == (EndReason.PREEMPTED, [FIRST])


def _remember_ready(env: CloudEnv) -> None:
    """Note in the lease what the create task notes there."""
    start = dt.datetime.fromisoformat(env.cloud.meter()["nodes"][0]["ready"][0]["start"])
    env.runs.update(env.runs.read(KEY), lambda record: record.with_life(FIRST, ready_at=start))


async def test_terminated_node_that_holds_all_quota_is_gone_before_the_next_create(open_env: Open) -> None:
    """With quota for one TPU the next incarnation is not refused because of the last one's terminated node."""
    quota = {"TPUV2sPreemptiblePerProjectPerZoneForTPUAPI@us-central1-f": 8}
    env = open_env(quota=quota, latencies=Latencies(deleting=1.0))
    async with env.client() as client:
        await ready(env, client)
        env.cloud.preempt(FIRST)
        target = await env.ensure(client)
    assert target.node_id == SECOND
    assert len(env.calls("CreateNode")) == 2


@BOTH
async def test_lost_create_answer_leaves_one_tpu(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """A create that took effect without an answer is found by its name, and not asked for twice."""
    method = "CreateQueuedResource" if queued else "CreateNode"
    env.cloud.add_fault("tpu.call", {"method": method}, action="lose-response")
    target = await ready(env, client, queued)
    assert target.node_id == FIRST
    assert env.nodes() == {FIRST: "READY"}
    assert env.cloud.cloud.faults.unused() == []


async def test_name_of_a_colleague_is_left_alone(env: CloudEnv, client: TPUClient) -> None:
    """A node that happens to have our name without our labels is neither adopted nor deleted."""
    env.foreign_node(FIRST)
    with pytest.raises(NameTaken):
        await env.ensure(client)
    assert list(env.nodes()) == [FIRST]
    assert env.calls("DeleteNode") == []


async def test_look_alikes_are_neither_adopted_nor_swept(env: CloudEnv, client: TPUClient) -> None:
    """A longer name, another run's labels and another tool's labels are not ours."""
    other = RunKey(AIRFLOW, KEY.dag_id, "manual__2026-01-02T00:00:00+00:00")
    env.foreign_node(f"{KEY.name}-1x", labels={"airflow-tpu-run": KEY.digest})
    env.foreign_node(other.node_id(1), labels=labels(other, env.lease(other).stamp))
    env.cloud.preempt(other.node_id(1))
    target = await ready(env, client)
    assert target.node_id == FIRST
    assert set(env.nodes()) == {FIRST, f"{KEY.name}-1x", other.node_id(1)}


async def test_node_that_is_being_deleted_is_not_adopted(open_env: Open) -> None:
    """A node in DELETING is on its way out: the next incarnation is created beside it."""
    env = open_env(latencies=Latencies(deleting=1.0))
    async with env.client() as client:
        first = await ready(env, client)
        await client.delete_node(first.node)
        assert (await env.ensure(client)).node_id == SECOND


async def test_failed_request_is_swept(env: CloudEnv, client: TPUClient) -> None:
    """A queued resource that failed holds quota until it is deleted; the next try deletes it."""
    message = 'There is no more capacity in the zone "us-central1-f"'
    env.cloud.add_fault("queued.timeline", fail={"code": 8, "message": message})
    first = await env.ensure(client, queued=True)
    with pytest.raises(StockOut):
        await until_ready(client, first, poll_policy())
    target = await ready(env, client, queued=True)
    assert target.node_id == SECOND
    assert list(env.queued()) == [SECOND]
    assert closed(env)[FIRST].end_reason is EndReason.NEVER_READY


async def test_the_record_names_the_grant(env: CloudEnv, client: TPUClient) -> None:
    """Term and rows are written down before the create: what is covered is decided by the grant of that moment."""
    await env.ensure(client)
    (event,) = env.ledger.open_records()
    assert event.term is not None
    assert (event.term.begins_at, event.term.ends_at) == (env.grant.begins_at, env.grant.ends_at)
    assert list(event.term.rows) == [str(row) for row in env.grant.allowances]
    assert event.allowance in event.term.rows


async def test_incarnations_count_on_where_the_project_stands(env: CloudEnv, client: TPUClient) -> None:
    """With the lease object lost, numbers continue from the newest TPU that the project knows."""
    await ready(env, client)
    env.cloud.preempt(FIRST)
    env.runs.release(KEY)
    assert (await env.ensure(client)).node_id == SECOND
    assert token_of((await client.node(REPLACEMENT)).labels) == env.runs.read(KEY).lease.token


async def test_zone_of_the_living_tpu_wins(env: CloudEnv, client: TPUClient) -> None:
    """A TPU that lives in another zone than the form names now is used where it is."""
    await ready(env, client)
    order = env.order(zone="us-central1-b")
    target = await env.provisioner(client, order, env.lease()).ensure()
    assert target.node == NODE
