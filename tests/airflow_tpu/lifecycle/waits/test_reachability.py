# SPDX-License-Identifier: Apache-2.0
"""From READY to reachable: sshd that is late, keys that are late, TPUs that never get there."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from airflow_tpu.clients.ssh import Login
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import LastAttempt, RunRef
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.run.trigger_context import TRIGGER_CONTEXT_FORM, TriggerContext
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import HostKeyMismatch, HostLost, LoginRefused, TPUPreempted, TPUVanished
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.ensure_tpu import Ready, ensure_tpu
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.training.collect import collect
from airflow_tpu.lifecycle.training.launch import attach, launch
from airflow_tpu.lifecycle.waits.loss import lost_state
from airflow_tpu.lifecycle.waits.polling import Waiting
from airflow_tpu.lifecycle.waits.reachability import Access, arrive, session_with, worker_addresses
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.triggers.tpu import CloudTPUReadyTrigger
from localcloud.testing import eventually_async
from localcloud.vm.worker.ssh_keys import parse_ssh_keys
from tests.airflow_tpu.attempts import run_context
from tests.airflow_tpu.cloud_env import BRIEF, BUCKET, KEY, PARENT, CloudEnv, now, poll_policy

GCP, SSH = "google_cloud_default", "tpu_ssh_default"
ENDLESS_WAIT = Waiting(0.05, None)
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


REFUSALS = {
    "missing": (5, 'The "GuestAttributes" value "hostkeys/" was not found.'),
    "policy": (7, "Constraint constraints/compute.disableGuestAttributesAccess violated for project 123."),
    "precondition": (9, "Constraint constraints/compute.disableGuestAttributesAccess violated for project 123."),
    "role": (7, "Permission 'tpu.nodes.getGuestAttributes' denied on resource (or it may not exist)."),
    "unsupported": (12, "Method not supported for this node."),
}


def hide_keys(env: CloudEnv, refusal: str = "missing") -> None:
    """Have the API refuse the guest attributes from now on."""
    code, message = REFUSALS[refusal]
    match = {"method": "GetGuestAttributes"}
    env.cloud.add_fault("tpu.call", match, times=1000, action="error", code=code, message=message)


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_host_key_that_cannot_be_read_is_trusted_once_and_said(
    env: CloudEnv, client: TPUClient, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without guest attributes that can be read the first key shown is pinned, and the log says so."""
    published = await worker_keys(env, client)
    hide_keys(env, refusal)
    arrival, (address,) = await arrive(client, await env.ensure(client), env.access, poll_policy())
    assert arrival.host_keys == (address.host_key,) == published
    assert said(caplog, "publishes no host key: the first key seen is trusted")


async def worker_keys(env: CloudEnv, client: TPUClient) -> tuple[str, ...]:
    """Host keys of the run's TPU, which is READY, as the API publishes them."""
    await until_ready(client, await env.ensure(client), poll_policy())
    return tuple((await client.host_keys(NODE)).values())


def change_keys(env: CloudEnv) -> None:
    """Put another machine in the place of each worker."""
    workers = env.cloud.call(lambda: env.cloud.cloud.worker_pool.workers_of(str(NODE)))
    assert workers is not None
    env.cloud.run(workers.each(lambda worker: worker.rotate_host_key()))


async def first_login(env: CloudEnv, client: TPUClient, work: RunContext) -> RunRecord:
    """A READY TPU whose host keys an attempt has seen, and cannot be read from the API."""
    await until_ready(client, await env.ensure(client), poll_policy())
    hide_keys(env)
    found = await asyncio.to_thread(ensure_tpu, work, env.runs.read(KEY), ENDLESS_WAIT)
    assert isinstance(found, Ready)
    return found.record


async def test_lease_keeps_the_host_keys_of_the_first_login(env: CloudEnv, client: TPUClient) -> None:
    """The keys are in the run record, for this incarnation only."""
    published = await worker_keys(env, client)
    record = await first_login(env, client, run_context())
    assert env.runs.read(KEY).life(NODE_ID).host_keys == published
    assert record.life(KEY.node_id(2)).host_keys == ()


async def next_try(client: TPUClient, work: RunContext, record: RunRecord) -> object:
    """Log in as the next try of the task does."""
    target = await Provisioner(client, work.stores, work.request.order(), record).ensure()
    return await arrive(client, target, work.clients.access, poll_policy())


LOGINS: dict[str, Callable[[TPUClient, RunContext, RunRecord], Awaitable[object]]] = {
    "next try": next_try,
    "attach": lambda client, work, record: attach(client, work, record, NODE),
    "launch": lambda client, work, record: launch(client, work, record, NODE),
    "copy": lambda client, work, record: collect(client, work, record, f"gs://{BUCKET}/runs/x"),
}


@pytest.mark.parametrize("kind", LOGINS)
async def test_later_login_accepts_no_other_key(env: CloudEnv, client: TPUClient, kind: str) -> None:
    """A machine in the middle that comes after the first login gets nothing: not the next try, start, nor copy."""
    work = run_context()
    record = await first_login(env, client, work)
    started = env.runs.update(record, lambda now: now.next_attempt(LastAttempt(node_id=NODE_ID)))
    change_keys(env)
    with pytest.raises(HostKeyMismatch, match="another host key than the one pinned"):
        await LOGINS[kind](client, work, started)


async def test_trigger_hands_the_keys_on_and_keeps_to_them(env: CloudEnv, client: TPUClient) -> None:
    """What the trigger has pinned goes to the lease with its event; a trigger of a later try refuses another key."""
    target = await env.ensure(client)
    await until_ready(client, target, poll_policy())
    hide_keys(env)
    carried = TriggerContext(KEY, "token", GCP, SSH, "", 0.05, (now() + dt.timedelta(hours=1)).timestamp())
    watch = TRIGGER_CONTEXT_FORM.to_json(carried)
    event = await CloudTPUReadyTrigger(watch, json_form.to_json(target)).outcome()
    change_keys(env)
    later = replace(target, host_keys=tuple(event["host_keys"]))
    with pytest.raises(HostKeyMismatch):
        await CloudTPUReadyTrigger(watch, json_form.to_json(later)).outcome()


async def test_key_that_the_api_publishes_later_counts(env: CloudEnv, client: TPUClient) -> None:
    """Maintenance may give a worker another key: the API says so, and it is believed more than an earlier login."""
    (published,) = await worker_keys(env, client)
    (address,) = await worker_addresses(
        client, await client.node(NODE), env.access.options.ssh_port, ["ssh-ed25519 AAAA"]
    )
    assert address.host_key == published


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


async def test_first_refused_connection_asks_for_the_node(env: CloudEnv, client: TPUClient) -> None:
    """A TPU that went between two tasks is a loss after one connection, not after a window of them."""
    _, (address,) = await arrive(client, await env.ensure(client), env.access, poll_policy())
    env.cloud.preempt(NODE_ID)
    asked = len(env.calls("GetNode"))
    with pytest.raises(TPUPreempted, match="PREEMPTED"):
        async with session_with(client, env.login, NODE, address):
            pytest.fail("a preempted TPU has let us in")
    assert len(env.calls("GetNode")) == asked + 1


async def test_connection_that_breaks_asks_for_the_node(env: CloudEnv, client: TPUClient) -> None:
    """A TPU that goes while it is spoken to is a loss as well, not a broken connection."""
    _, (address,) = await arrive(client, await env.ensure(client), env.access, poll_policy())

    async def speak() -> None:
        async with session_with(client, env.login, NODE, address) as session:
            env.cloud.preempt(NODE_ID)
            await session.status(RunRef(KEY.name, 1))

    with pytest.raises(TPUPreempted, match="PREEMPTED"):
        await speak()


async def test_refused_connection_to_a_living_node_is_tried_again(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """While the API calls the node alive its sshd may be restarting: that is said, and waited for."""
    caplog.set_level(logging.INFO, "airflow_tpu")
    _, (address,) = await arrive(client, await env.ensure(client), env.access, poll_policy())
    workers = env.cloud.call(lambda: env.cloud.cloud.worker_pool.workers_of(str(NODE)))
    assert workers is not None
    env.cloud.run(workers.each(lambda worker: worker.refuse()))

    async def ask() -> str:
        async with session_with(client, env.login, NODE, address) as session:
            return (await session.status(RunRef(KEY.name, 1))).state

    async def refused() -> bool:
        return said(caplog, "is alive, trying again until")

    asking = asyncio.create_task(ask())
    await eventually_async(refused, bool)
    let_in(env)
    assert await asking == "absent"
