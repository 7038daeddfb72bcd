"""From READY to reachable: sshd that is late, keys that are late, TPUs that never get there."""

from __future__ import annotations

import asyncio
import logging

import pytest

from airflow_tpu.clients.ssh import Login
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import HostKeyMismatch, HostLost, LoginRefused, TPUPreempted, TPUVanished
from airflow_tpu.lifecycle.waits.loss import lost_state
from airflow_tpu.lifecycle.waits.reachability import Access, arrive
from airflow_tpu.lifecycle.waits.ready import until_ready
from localcloud.testing import eventually_async
from localcloud.vm.worker.ssh_keys import parse_ssh_keys
from tests.airflow_tpu.cloud_env import BRIEF, KEY, PARENT, CloudEnv, poll_policy

NODE_ID = KEY.node_id(1)
NODE = ResourceName.parse(f"{PARENT}/nodes/{NODE_ID}")


async def states(env: CloudEnv) -> dict[str, str]:
    """State of every node by its id."""
    return env.nodes()


def said(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    """Whether the log holds a text."""
    return any(words in record.getMessage() for record in caplog.records)


async def test_arrives_when_a_command_has_run(env: CloudEnv, client: TPUClient) -> None:
    """The worker's address carries the connection's port and the host key that the API publishes."""
    arrival, (address,) = await arrive(client, await env.ensure(client), env.access, poll_policy())
    assert arrival.view.node_id == NODE_ID
    assert address.port == env.cloud.endpoints.ssh_port
    assert address.host_key == (await client.host_keys(NODE))[0]


def let_in(env: CloudEnv) -> None:
    """Let the workers listen, and give them the keys of the metadata."""
    workers = env.cloud.call(lambda: env.cloud.cloud.worker_pool.workers_of(str(NODE)))
    keys = parse_ssh_keys(env.cloud.call(lambda: dict(env.cloud.cloud.state.node(NODE_ID).template.metadata)))
    assert workers is not None
    env.cloud.run(workers.each(lambda worker: worker.accept()))
    env.cloud.run(workers.each(lambda worker: worker.set_keys(keys)))


@pytest.mark.parametrize("late", ["refuse_seconds", "key_late_seconds"])
async def test_late_sshd_or_key_is_waited_for(
    env: CloudEnv, client: TPUClient, late: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections refused and keys denied right after READY are normal, and said."""
    caplog.set_level(logging.INFO, "airflow_tpu")
    env.cloud.cloud.faults.add({"point": "vm.ssh", "params": {late: 600}})
    arriving = asyncio.create_task(arrive(client, await env.ensure(client), env.access, poll_policy()))

    async def refused() -> bool:
        return said(caplog, "is not reachable yet")

    await eventually_async(refused, bool)
    let_in(env)
    arrival, _ = await arriving
    assert arrival.view.node_id == NODE_ID
    assert env.cloud.cloud.faults.unused() == []


async def test_ready_and_never_reachable_is_named(env: CloudEnv, client: TPUClient) -> None:
    """When the window has closed on a READY node it counts as lost, and the error has the text of the last try."""
    env.cloud.add_fault("vm.ssh", refuse_seconds=600)
    target = await env.ensure(client)
    await until_ready(client, target, poll_policy())
    with pytest.raises(HostLost, match="refuses connections"):
        await arrive(client, target, env.access, poll_policy(0.3))


async def test_wrong_user_is_refused_to_the_last(env: CloudEnv, client: TPUClient) -> None:
    """A key that the metadata do not hold stays refused, and the text names OS Login."""
    target = await env.ensure(client)
    await until_ready(client, target, poll_policy())
    stranger = Access(Login("stranger", env.login.private_key), env.access.options)
    with pytest.raises(LoginRefused, match="OS Login"):
        await arrive(client, target, stranger, poll_policy(0.3))


async def test_preempted_while_booting_is_a_preemption(env: CloudEnv, client: TPUClient) -> None:
    """A node that is taken back while its sshd refuses is preempted, not unreachable."""
    env.cloud.add_fault("vm.ssh", refuse_seconds=600)
    env.cloud.add_fault("node.timeline", preempt_after=0.6)
    with pytest.raises(TPUPreempted, match="PREEMPTED"):
        await arrive(client, await env.ensure(client), env.access, poll_policy())
    assert env.cloud.cloud.faults.unused() == []


async def test_other_host_key_than_published_is_refused(env: CloudEnv, client: TPUClient) -> None:
    """A worker that shows another key than the API publishes gets no login and no second chance."""
    target = await env.ensure(client)
    await until_ready(client, target, poll_policy())
    workers = env.cloud.call(lambda: env.cloud.cloud.worker_pool.workers_of(str(NODE)))
    assert workers is not None
    env.cloud.run(workers.each(lambda worker: worker.rotate_host_key()))
    with pytest.raises(HostKeyMismatch):
        await arrive(client, target, env.access, poll_policy())


async def test_unpublished_host_key_is_trusted_once_and_said(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a published key the first one shown is taken for this incarnation; the log says so."""
    text = 'The "GuestAttributes" value "hostkeys/" was not found.'
    env.cloud.add_fault("tpu.call", {"method": "GetGuestAttributes"}, action="error", code=5, message=text)
    _, (address,) = await arrive(client, await env.ensure(client), env.access, poll_policy())
    assert address.host_key is None
    assert said(caplog, "publishes no host key")


async def test_state_of_a_lost_node(env: CloudEnv, client: TPUClient) -> None:
    """Alive is None; preempted, being deleted and unknown are three ways of being lost."""
    target = await env.ensure(client)
    await until_ready(client, target, poll_policy())
    assert await lost_state(client, NODE) is None
    env.cloud.preempt(NODE_ID)
    assert isinstance(await lost_state(client, NODE), TPUPreempted)
    await client.delete_node(NODE)
    await eventually_async(lambda: states(env), lambda found: found == {})
    assert isinstance(await lost_state(client, NODE), TPUVanished)


async def test_api_that_stumbles_says_nothing_about_a_node(env: CloudEnv, client: TPUClient) -> None:
    """Neither an outage nor a rate limit is taken for a lost TPU."""
    target = await env.ensure(client)
    await until_ready(client, target, poll_policy())
    env.cloud.add_fault("tpu.call", {"method": "GetNode"}, action="error", code=8, reason="RATE_LIMIT_EXCEEDED")
    assert await lost_state(client, NODE) is None
    env.cloud.add_fault("tpu.call", {"method": "GetNode"}, times=1000, action="error", code=14)
    async with env.client(BRIEF) as hasty:
        assert await lost_state(hasty, NODE) is None


async def test_state_that_nobody_knows_is_told(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A new state of Google's is no loss; the log names it, once, however often it is looked at."""
    await until_ready(client, await env.ensure(client), poll_policy())
    cloud = env.cloud.cloud
    env.cloud.call(lambda: cloud.state.nodes.force(cloud.state.node(NODE_ID), 97))
    assert [await lost_state(client, NODE) for _ in range(3)] == [None] * 3
    told = [record.getMessage() for record in caplog.records if "unknown to this version" in record.getMessage()]
    assert [line.partition(" with ")[0] for line in told] == ["node state '97'"]
