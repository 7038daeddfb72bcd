# SPDX-License-Identifier: Apache-2.0
"""A TPU that is there and not well: how long that has lasted is counted once, whoever waits."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core import json_form
from airflow_tpu.core.run.trigger_context import TRIGGER_CONTEXT_FORM, TriggerContext
from airflow_tpu.errors import DeadlineExceeded, HostLost, TPUVanished
from airflow_tpu.lifecycle.waits.polling import UnhealthySince
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.lifecycle.waits.target import Target
from airflow_tpu.triggers.tpu import CloudTPUReadyTrigger
from localcloud.testing import eventually_async
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, now, poll_policy

NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
LONG_AGO = 1000.0
"""Seconds that are more than any node may be sick."""


@pytest.fixture
async def sick(env: CloudEnv, client: TPUClient) -> Target:
    """A node that is READY and unhealthy, and stays so."""
    env.cloud.add_fault("node.timeline", health_after=0, health=5)
    target = await env.provisioner(client, env.order(), env.lease()).ensure()
    await eventually_async(client.nodes, lambda found: any("UNHEALTHY" in node.health for node in found.items))
    return target


def test_illness_lasts_from_its_first_look() -> None:
    """It is counted from look to look, and from nothing again once the node was well."""
    illness = UnhealthySince()
    seen = [(True, 0), (True, 60), (False, 90), (True, 100), (True, 130)]
    assert [illness.seconds(sick, NOON + dt.timedelta(seconds=at)) for sick, at in seen] == [0, 60, 0, 0, 30]


async def test_a_wait_tells_the_next_one_what_it_has_seen(client: TPUClient, sick: Target) -> None:
    """A task that hands its wait over has noted since when the node is sick."""
    illness, before = UnhealthySince(), now().timestamp()
    waiting = asyncio.create_task(until_ready(client, sick, poll_policy(600.0), illness))

    async def since() -> float:
        return illness.since

    assert await eventually_async(since, bool) >= before
    waiting.cancel()


async def test_a_trigger_counts_on_from_its_task(env: CloudEnv, sick: Target) -> None:
    """A node that the task had seen sick for long enough is given up at the trigger's first look."""
    later = now() + dt.timedelta(hours=1)
    watch = TriggerContext(KEY, "token", "google_cloud_default", "tpu_ssh_default", "", 0.05, later.timestamp())
    trigger = CloudTPUReadyTrigger(
        TRIGGER_CONTEXT_FORM.to_json(watch), json_form.to_json(sick), now().timestamp() - LONG_AGO
    )
    _, arguments = trigger.serialize()
    with pytest.raises(HostLost, match="replaced"):
        await CloudTPUReadyTrigger(**arguments).outcome()


SHOWN = [
    pytest.param(False, "node.timeline", {"hidden": "forever"}, "addresses of its workers", id="no endpoints"),
    pytest.param(False, "node.timeline", {"health_after": 0, "health": 42}, "READY, 42, which", id="unknown health"),
    pytest.param(False, "node.timeline", {"states": [[0, 99]]}, "99, which", id="unknown state"),
    pytest.param(True, "queued.timeline", {"wait": "forever", "state": 77}, "77, which", id="unknown queued state"),
]


@pytest.mark.filterwarnings("ignore:Unrecognized")
@pytest.mark.parametrize(("queued", "point", "params", "words"), SHOWN)
async def test_what_cannot_be_used_is_given_up(
    env: CloudEnv, client: TPUClient, queued: bool, point: str, params: dict[str, Any], words: str
) -> None:
    """READY without addresses, and numbers that this release does not know, end as a lost host before the deadline."""
    fault = env.cloud.add_fault(point, **params)
    target = await env.ensure(client, queued)
    with pytest.raises(HostLost, match=rf"{words}.*replaced"):
        await until_ready(client, target, replace(poll_policy(), unhealthy=0.5))
    assert fault not in env.cloud.cloud.faults.unused()


AT_WORK = [
    pytest.param(False, "node.timeline", {"states": [[0, 1]]}, "CREATING", id="creating"),
    pytest.param(False, "node.timeline", {"states": [[0, 3]]}, "RESTARTING", id="restarting"),
    pytest.param(False, "node.timeline", {"states": [[0, 4]]}, "REIMAGING", id="reimaging"),
    pytest.param(True, "queued.timeline", {"wait": "forever", "state": 3}, "PROVISIONING", id="provisioning"),
]


@pytest.mark.parametrize(("queued", "point", "params", "words"), AT_WORK)
async def test_what_google_works_on_for_too_long_is_given_up(
    env: CloudEnv, client: TPUClient, queued: bool, point: str, params: dict[str, Any], words: str
) -> None:
    """A TPU that stays on its way ends as a lost host before the deadline, also where its trigger counts on."""
    fault = env.cloud.add_fault(point, **params)
    target, seen = await env.ensure(client, queued), UnhealthySince()
    with pytest.raises(HostLost, match=rf"{words}.* after 0 s: it is replaced"):
        await until_ready(client, target, replace(poll_policy(), coming=0.3), seen)
    assert fault not in env.cloud.cloud.faults.unused()
    watch = TriggerContext(KEY, "t", "google_cloud_default", "tpu_ssh_default", "", 0.05, now().timestamp() + 3600.0)
    trigger = CloudTPUReadyTrigger(
        TRIGGER_CONTEXT_FORM.to_json(watch), json_form.to_json(target), seen.since, seen.coming - 3600.0
    )
    _, arguments = trigger.serialize()
    with pytest.raises(HostLost, match=rf"{words}.* after 3600 s"):
        await CloudTPUReadyTrigger(**arguments).outcome()


async def test_the_queue_has_no_bound_of_its_own(env: CloudEnv, client: TPUClient) -> None:
    """A request that waits for capacity is waited for until the run gives up, and begins anew when it has its turn."""
    env.cloud.add_fault("queued.timeline", wait="forever")
    target = await env.ensure(client, True)
    await eventually_async(lambda: client.queued_resource(target.queued), lambda one: one.state != "CREATING")
    seen = UnhealthySince()
    with pytest.raises(DeadlineExceeded):
        await until_ready(client, target, replace(poll_policy(1.0), coming=0.2), seen)
    assert seen.coming == 0.0


async def test_addresses_that_come_late_are_waited_for(env: CloudEnv, client: TPUClient) -> None:
    """A node that is READY for a moment before it shows its addresses is used."""
    env.cloud.add_fault("node.timeline", hidden=0.3)
    arrival = await until_ready(client, await env.ensure(client), poll_policy())
    assert arrival.view.has_addresses


async def test_request_that_somebody_deletes_is_not_waited_for(env: CloudEnv, client: TPUClient) -> None:
    """A queued resource that stays DELETING ends the wait at once, and the error says who may have done it."""
    env.cloud.add_fault("queued.timeline", wait="forever")
    env.cloud.add_fault("tpu.operation", {"verb": "delete"}, action="never", resource="stuck")
    target = await env.ensure(client, queued=True)
    await client.delete_queued_resource(target.queued)
    with pytest.raises(TPUVanished, match="is DELETING before it had a TPU: a person or another program deletes it"):
        await until_ready(client, target, poll_policy())


async def test_late_list_gives_nothing_up(env: CloudEnv, client: TPUClient) -> None:
    """A TPU that no list shows is read by its name before it is given up, and used once that says READY."""
    env.cloud.add_fault("tpu.list", {"event": "create"}, seconds=3600.0)
    target = await env.ensure(client)
    arrival = await until_ready(client, target, replace(poll_policy(), unhealthy=0.2))
    assert arrival.view.name == target.node
