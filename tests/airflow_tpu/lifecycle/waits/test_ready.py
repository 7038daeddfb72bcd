# SPDX-License-Identifier: Apache-2.0
"""The long waits: ready, lost, refused, gone, and how long is too long."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.cloud.tpu_v2.types import Node

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import TimeSource
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.errors import DeadlineExceeded, HostLost, StockOut, TPUError, TPUPreempted, TPUVanished, TransientError
from airflow_tpu.lifecycle.project_snapshot import names_of
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.polling import not_before, within
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.lifecycle.waits.target import Target
from localcloud.rules.settings import Latencies
from localcloud.testing import TIMEOUT, eventually_async
from tests.airflow_tpu.cloud_env import KEY, ZONE, CloudEnv, now, poll_policy, request_delete
from tests.airflow_tpu.conftest import Open
from tests.airflow_tpu.identities import AIRFLOW

NODE_ID = KEY.node_id(1)
STOCK_OUT = 'There is no more capacity in the zone "us-central1-f"'
BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


def force(env: CloudEnv, state: int) -> None:
    """Put the node into a state against all rules."""
    nodes = env.cloud.cloud.state.nodes
    env.cloud.call(lambda: nodes.force(env.cloud.cloud.state.node(NODE_ID), state))


async def seen(env: CloudEnv, method: str, times: int) -> None:
    """Wait until a method has been called so often from now on."""
    before = len(env.calls(method))

    async def count() -> int:
        return len(env.calls(method)) - before

    await eventually_async(count, lambda found: found >= times)


def metered(env: CloudEnv, edge: str) -> dt.datetime:
    """When the meter saw the node become READY, or end."""
    return dt.datetime.fromisoformat(env.cloud.meter()["nodes"][0]["ready"][0][edge])


async def requests(env: CloudEnv) -> list[str]:
    """State of every queued resource."""
    return list(env.queued().values())


async def test_direct_node_is_ready_by_the_api_s_clock(env: CloudEnv, client: TPUClient) -> None:
    """The end of a direct node's operation says since when it is charged."""
    arrival = await until_ready(client, await env.ensure(client), poll_policy())
    assert arrival.view.node_id == NODE_ID
    assert arrival.source is TimeSource.API
    assert abs(arrival.ready_at - metered(env, "start")) < dt.timedelta(seconds=0.5)


async def test_queued_node_is_ready_no_later_than_charged(env: CloudEnv, client: TPUClient) -> None:
    """The API has no such time for a queued resource: it is counted from the last look before, never too little."""
    arrival = await until_ready(client, await env.ensure(client, queued=True), poll_policy())
    assert arrival.source is TimeSource.OBSERVED
    assert arrival.ready_at <= metered(env, "start")
    looks = [dt.datetime.fromisoformat(call["at"]) for call in env.calls("ListNodes")]
    assert len([at for at in looks if arrival.ready_at < at < metered(env, "start")]) <= 1  # the last look itself


async def test_queued_node_that_no_list_shows_is_counted_from_its_creation(env: CloudEnv, client: TPUClient) -> None:
    """A look at which a list lacks the node does not say that it was not READY then."""
    target = await env.ensure(client, queued=True)
    env.cloud.add_fault("tpu.list", {"event": "create"}, seconds=2.0)
    arrival = await until_ready(client, target, poll_policy())
    assert arrival.ready_at <= metered(env, "start")


async def test_request_expires_with_the_run(env: CloudEnv, client: TPUClient) -> None:
    """A request carries the end of the run's lease: Google grants it to no Airflow that is gone by then."""
    target = await env.ensure(client, queued=True)
    assert (await client.queued_resource(target.queued)).valid_until == env.runs.read(KEY).lease.expires_at


async def test_request_expires_with_the_window(env: CloudEnv, client: TPUClient) -> None:
    """A run that wants its first TPU within a window asks for none after it."""
    closes = now() + dt.timedelta(minutes=10)
    target = await env.provisioner(client, replace(env.order(queued=True), closes=closes), env.lease()).ensure()
    assert (await client.queued_resource(target.queued)).valid_until == closes


@pytest.mark.parametrize(("left", "error"), [(0.0, DeadlineExceeded), (600.0, StockOut)])
async def test_end_of_an_expired_request(env: CloudEnv, client: TPUClient, left: float, error: type[TPUError]) -> None:
    """It ends a wait that ends with it as any wait ends; one whose deadline was raised asks for another."""
    env.cloud.add_fault("queued.timeline", {}, wait="forever")
    order = replace(env.order(queued=True), closes=now() + dt.timedelta(seconds=1))
    target = await env.provisioner(client, order, env.lease()).ensure()
    await eventually_async(partial(requests, env), lambda found: found == ["FAILED"])
    with pytest.raises(error):
        await until_ready(client, target, poll_policy(left))
    assert env.nodes() == {}


async def test_request_that_expired_is_replaced(env: CloudEnv, client: TPUClient) -> None:
    """The try after it deletes the dead request, which holds quota, and asks anew."""
    env.cloud.add_fault("queued.timeline", {}, wait="forever")
    order = replace(env.order(queued=True), closes=now() + dt.timedelta(seconds=1))
    await env.provisioner(client, order, env.lease()).ensure()
    await eventually_async(partial(requests, env), lambda found: found == ["FAILED"])
    target = await env.ensure(client, queued=True)
    assert target.queued.id == KEY.node_id(2)
    assert (await until_ready(client, target, poll_policy())).view.node_id == KEY.node_id(2)


@BOTH
async def test_adopted_node_is_charged_from_before(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """A node that was READY before the first look is not counted from that look, which would be too little."""
    await until_ready(client, await env.ensure(client, queued), poll_policy())
    adopted = await env.ensure(client, queued)
    arrival = await until_ready(client, Target(adopted.node, adopted.is_queued), poll_policy())
    assert arrival.source is TimeSource.OBSERVED
    assert arrival.ready_at <= metered(env, "start")


async def test_never_ending_operation_does_not_hold_back_a_ready_node(env: CloudEnv, client: TPUClient) -> None:
    """The node's state is the truth: a READY node is used although the create operation never ends."""
    fault = env.cloud.add_fault("tpu.operation", {"verb": "create"}, action="never")
    target = await env.ensure(client)
    arrival = await until_ready(client, target, poll_policy())
    assert not (await client.operation(target.operation)).done
    assert arrival.ready_at <= metered(env, "start")
    assert fault not in env.cloud.cloud.faults.unused()


async def test_forgotten_operation_is_no_failure(env: CloudEnv, client: TPUClient) -> None:
    """An operation that the API no longer knows leaves the node's state to decide."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, action="forget")
    arrival = await until_ready(client, await env.ensure(client), poll_policy())
    assert arrival.view.node_id == NODE_ID


async def test_unknown_state_is_waited_out(env: CloudEnv, client: TPUClient) -> None:
    """A state that no client knows yet is neither success nor failure."""
    target = await env.ensure(client)
    await until_ready(client, target, poll_policy())
    force(env, 99)
    waiting = asyncio.create_task(until_ready(client, target, poll_policy()))
    await seen(env, "ListNodes", 3)
    assert not waiting.done()
    force(env, int(Node.State.READY))
    assert (await waiting).view.node_id == NODE_ID


async def test_node_that_does_not_get_well_is_given_up(env: CloudEnv, client: TPUClient) -> None:
    """A node that is READY and unhealthy is charged: after a while it counts as lost, long before the deadline."""
    env.cloud.add_fault("node.timeline", health_after=0, health=5)
    target = await env.ensure(client)
    await eventually_async(lambda: client.nodes(), lambda found: any("UNHEALTHY" in n.health for n in found.items))
    with pytest.raises(HostLost, match=r"UNHEALTHY_MAINTENANCE.*replaced"):
        await until_ready(client, target, replace(poll_policy(), unhealthy=0.2))


async def test_unhealthy_node_is_waited_for(env: CloudEnv, client: TPUClient) -> None:
    """READY with a maintenance mark is not ready."""
    env.cloud.add_fault("node.timeline", health_after=0, health=5)
    target = await env.ensure(client)
    await eventually_async(lambda: client.nodes(), lambda found: any("UNHEALTHY" in n.health for n in found.items))
    with pytest.raises(DeadlineExceeded, match="UNHEALTHY_MAINTENANCE"):
        await until_ready(client, target, poll_policy(0.3))


@BOTH
async def test_preempted_while_creating(open_env: Open, queued: bool) -> None:
    """A TPU that is taken back before it was ever READY is a preemption, not a fault of the request."""
    env = open_env(latencies=Latencies(creating=600.0))
    async with env.client() as client:
        target = await env.ensure(client, queued)
        await eventually_async(lambda: client.nodes(), lambda found: len(found.items) == 1)
        env.cloud.preempt(NODE_ID)
        with pytest.raises(TPUPreempted):
            await until_ready(client, target, poll_policy())


FAILURES = [
    pytest.param(False, "tpu.operation", {"action": "error", "code": 8, "message": STOCK_OUT}, StockOut, id="node"),
    pytest.param(True, "queued.timeline", {"fail": {"code": 8, "message": STOCK_OUT}}, StockOut, id="queued-resource"),
    pytest.param(False, "tpu.operation", {"action": "error", "code": 13}, TransientError, id="code-13"),
]


@pytest.mark.parametrize(("queued", "point", "params", "leaf"), FAILURES)
async def test_failure_after_acceptance(
    env: CloudEnv, client: TPUClient, queued: bool, point: str, params: dict[str, Any], leaf: type[TPUError]
) -> None:
    """What fails after the call was accepted has the same class as if the call itself had been refused."""
    env.cloud.add_fault(point, **params)
    with pytest.raises(leaf) as caught:
        await until_ready(client, await env.ensure(client, queued), poll_policy())
    assert type(caught.value) is leaf


async def test_deleted_by_somebody_while_waited_for(open_env: Open) -> None:
    """A node that was there and is unknown now ends the wait."""
    env = open_env(latencies=Latencies(creating=600.0))
    async with env.client() as client:
        target = await env.ensure(client, queued=True)
        await eventually_async(lambda: client.nodes(), lambda found: len(found.items) == 1)
        await client.delete_queued_resource(target.queued)
        with pytest.raises((TPUVanished, TPUPreempted)):
            await until_ready(client, target, poll_policy())


async def test_stumbling_api_does_not_end_a_wait(env: CloudEnv, client: TPUClient) -> None:
    """Rate limits and outages longer than the client's own retries are waited out."""
    target = await env.ensure(client)
    env.cloud.add_fault(
        "tpu.call", {"method": "ListNodes"}, times=3, action="error", code=8, reason="RATE_LIMIT_EXCEEDED"
    )
    env.cloud.add_fault("tpu.call", {"method": "ListNodes"}, times=3, action="error", code=8, message="Socket closed")
    arrival = await until_ready(client, target, poll_policy())
    assert arrival.view.node_id == NODE_ID
    assert env.cloud.cloud.faults.unused() == []


async def test_deadline_names_what_was_waited_for(env: CloudEnv, client: TPUClient) -> None:
    """A request that stays in the queue ends with the run's deadline and says where it stood."""
    env.cloud.add_fault("queued.timeline", wait="forever")
    target = await env.ensure(client, queued=True)
    await eventually_async(partial(requests, env), lambda found: found == ["WAITING_FOR_RESOURCES"])
    with pytest.raises(DeadlineExceeded, match=r"queued resource to become ACTIVE \(now WAITING_FOR_RESOURCES\)"):
        await until_ready(client, target, poll_policy(0.3))


async def test_gone_when_the_api_knows_nothing(env: CloudEnv, client: TPUClient) -> None:
    """After a delete the wait ends when node and queued resource are both unknown."""
    await until_ready(client, await env.ensure(client, queued=True), poll_policy())
    await request_delete(client, KEY)
    await until_gone(client, KEY, poll_policy())
    assert (env.nodes(), env.queued()) == ({}, {})


async def test_names_are_asked_for_once_the_lists_show_nothing(env: CloudEnv, client: TPUClient) -> None:
    """While a list shows what is being deleted a look is two calls, however many records are open."""
    await until_ready(client, await env.ensure(client), poll_policy())
    names = names_of(env.ledger.open_records(KEY))
    asked = len(env.calls("GetNode"))
    env.cloud.add_fault("tpu.operation", {"verb": "delete"}, action="never", resource="stuck")
    await request_delete(client, KEY)
    with pytest.raises(DeadlineExceeded):
        await until_gone(client, KEY, poll_policy(0.3), names=names)
    assert len(env.calls("GetNode")) == asked
    await until_gone(
        client, RunKey(AIRFLOW, "another", "run"), poll_policy(), names=[node_name("local-project", ZONE, "late-1")]
    )
    assert len(env.calls("GetNode")) == asked + 1


async def test_gone_does_not_wait_for_others(env: CloudEnv, client: TPUClient) -> None:
    """A colleague's node of a similar name does not count as ours."""
    env.foreign_node(f"{NODE_ID}1")
    await until_gone(client, KEY, poll_policy())
    assert env.nodes() == {f"{NODE_ID}1": "READY"}


async def test_suspending_request_is_deleted_when_it_can_be(open_env: Open) -> None:
    """A request that is SUSPENDING at teardown is not forced; it is deleted as soon as it is SUSPENDED."""
    env = open_env(latencies=Latencies(suspending=0.5))
    async with env.client() as client:
        await until_ready(client, await env.ensure(client, queued=True), poll_policy())
        env.cloud.preempt(NODE_ID)
        await eventually_async(partial(requests, env), lambda states: states == ["SUSPENDING"])
        await request_delete(client, KEY)
        assert env.calls("DeleteQueuedResource") == []
        await until_gone(client, KEY, poll_policy())
    assert env.queued() == {}


async def test_gone_cannot_be_said_of_a_silent_zone(env: CloudEnv, client: TPUClient) -> None:
    """While a zone does not answer it is unknown whether something is left; the error names it."""
    env.cloud.add_fault("tpu.zone", {"zone": "us-east1-d"}, times=1000, action="unreachable")
    with pytest.raises(DeadlineExceeded, match=r"unreachable zone.*us-east1-d"):
        await until_gone(client, KEY, poll_policy(0.3))


async def test_stuck_delete_is_reported(env: CloudEnv, client: TPUClient) -> None:
    """A node that stays DELETING is named when the time is over."""
    await until_ready(client, await env.ensure(client), poll_policy())
    env.cloud.add_fault("tpu.operation", {"verb": "delete"}, action="never", resource="stuck")
    await request_delete(client, KEY)
    with pytest.raises(DeadlineExceeded, match=rf"nodes/{NODE_ID} \(DELETING\)"):
        await until_gone(client, KEY, poll_policy(0.3))


async def test_within_hands_over_when_time_is_short() -> None:
    """A wait that ends in time gives its result, a longer one gives None and is cancelled."""

    async def at_once() -> str:
        return "ready"

    forever = asyncio.Event()
    assert await within(TIMEOUT, at_once()) == "ready"
    assert await within(0.01, forever.wait()) is None


async def test_failed_wait_keeps_its_error() -> None:
    """An error of the wait itself is not taken for running out of time."""

    async def refused() -> str:
        raise DeadlineExceeded("too late")

    with pytest.raises(DeadlineExceeded):
        await within(TIMEOUT, refused())


async def test_event_is_held_back_until_its_instant() -> None:
    """An instant that has passed holds nothing back."""
    await not_before(now().timestamp() - 5.0, lambda: now().timestamp())
