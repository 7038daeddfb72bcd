# SPDX-License-Identifier: Apache-2.0
"""Many waits in one process: the calls grow with the zones, not with the TPUs."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint, Listing
from airflow_tpu.clients.tpu_list_cache import Fresh, nodes
from airflow_tpu.core.tpu.resource_name import ResourceName, node_name
from airflow_tpu.core.tpu.spec import TPUView
from airflow_tpu.errors import RateLimited, StockOut, TransientError
from airflow_tpu.lifecycle.training.follow import LAST_WORDS, WATCH_POLL
from airflow_tpu.lifecycle.waits.polling import PollPolicy
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.lifecycle.waits.target import Target, target_of
from localcloud.rules.settings import Latencies
from localcloud.testing import eventually_async
from tests.airflow_tpu.cloud_env import KEY, PARENT, ZONE, CloudEnv, poll_policy
from tests.airflow_tpu.conftest import Open

POLL = 0.4
LISTS = ("ListNodes", "ListQueuedResources")
OPERATIONS = "Operations/ListOperations"
STOCK_OUT = 'There is no more capacity in the zone "us-central1-f"'


def calls(env: CloudEnv) -> Counter[str]:
    """How often each method of the TPU API was called."""
    return Counter({name.removeprefix("Tpu/"): count for name, count in env.cloud.meter()["calls"].items()})


async def patient(env: CloudEnv, node_id: str) -> None:
    """A wait with a client of its own, as each trigger has one."""
    target = target_of(env.order(queued=True).spec, node_id)
    async with env.client() as client:
        await until_ready(client, target, PollPolicy(POLL, poll_policy(600.0).until))


async def listed(env: CloudEnv, times: int) -> tuple[Counter[str], float]:
    """Calls that are made until nodes have been listed so often, and how many polls that took."""
    loop = asyncio.get_running_loop()
    start, before = loop.time(), calls(env)  # in this order: no call is counted before the time

    async def made() -> Counter[str]:
        return calls(env) - before

    found = await eventually_async(made, lambda found: found["ListNodes"] >= times)
    return found, (loop.time() - start) / POLL


@pytest.mark.parametrize("waits", [1, 50])
async def test_lists_are_shared_by_all_waits_of_a_zone(env: CloudEnv, client: TPUClient, waits: int) -> None:
    """Fifty waits ask for as many lists as one: hardly more than one in each poll, and for no TPU by its name."""
    env.cloud.add_fault("queued.timeline", wait="forever")
    await env.provisioner(client, env.order(queued=True), env.lease()).ensure()
    waiting = [asyncio.create_task(patient(env, KEY.node_id(1))) for _ in range(waits)]
    await listed(env, 3)  # all have begun
    found, polls = await listed(env, 5)
    # A list is taken by everybody while it is younger than three quarters of a poll.
    assert all(found[method] <= polls / 0.75 + 2 for method in LISTS), (found, polls)
    assert set(found) <= {*LISTS, OPERATIONS}
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def created(env: CloudEnv, node_id: str) -> Target:
    """Ask for a node, past the product; it stays CREATING."""
    node = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base"}
    request = tpu_v2.CreateNodeRequest(parent=PARENT, node_id=node_id, node=node)
    operation = env.cloud.call(lambda: env.cloud.cloud.service.methods["Tpu/CreateNode"](request))
    return Target(node_name("local-project", ZONE, node_id), operation=str(operation.name))


async def arriving(env: CloudEnv, target: Target) -> None:
    """A wait for a node, with a client of its own."""
    async with env.client() as client:
        await until_ready(client, target, PollPolicy(POLL, poll_policy(600.0).until))


@pytest.mark.parametrize("nodes", [1, 20])
async def test_creates_are_followed_by_one_list(open_env: Open, nodes: int) -> None:
    """Twenty nodes that are being created are followed by as many calls as one, and by none of its own for any."""
    env = open_env(latencies=Latencies(creating=600.0))
    targets = [created(env, f"node-{number}") for number in range(nodes)]
    before = calls(env)
    waiting = [asyncio.create_task(arriving(env, target)) for target in targets]
    await listed(env, 5)
    found = calls(env) - before
    assert set(found) == {"ListNodes", OPERATIONS}
    assert found[OPERATIONS] == 1
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_operations_that_may_not_be_listed_are_asked_for_by_name(env: CloudEnv, client: TPUClient) -> None:
    """An account without the right to list them still learns of a create that has failed."""
    env.cloud.add_fault("tpu.call", {"method": "ListOperations"}, times=1000, action="error", code=7)
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, code=8, message=STOCK_OUT)
    with pytest.raises(StockOut):
        await until_ready(client, await env.ensure(client), poll_policy())
    made = calls(env)
    assert made[OPERATIONS] > 0
    assert made["Operations/GetOperation"] > 1  # one look more than the one by which no loss is believed from a list


def nth_node(number: int) -> ResourceName:
    """The one node of the n-th list."""
    return node_name("p", ZONE, f"node-{number}")


class ListServer:
    """A list call that answers when the test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def list_nodes(self, _zone: str = "-") -> Listing[TPUView]:
        """Count, wait for the gate, answer."""
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return Listing((TPUView(nth_node(number), "READY"),))


class OneServer(TPUClient):
    """A client whose lists come from a server."""

    def __init__(self, server: ListServer, project: str) -> None:
        super().__init__(APIEndpoint(project, AnonymousCredentials()))
        self.server = server

    async def nodes(self, zone: str = "-") -> Listing[TPUView]:
        """From the server."""
        return await self.server.list_nodes(zone)


def ask(
    server: ListServer, project: str = "p", fresh: Fresh | None = None
) -> asyncio.Task[dict[ResourceName, TPUView]]:
    """Ask for the nodes beside the test, with a client of one's own."""
    return asyncio.ensure_future(nodes(OneServer(server, project), ZONE, fresh or Fresh(60.0)))


async def settled() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_comes_during_a_fetch_waits_for_it() -> None:
    """Two ask at once, one call is made, both get its answer, and so does one that asks later."""
    server = ListServer()
    first, second = ask(server), ask(server)
    await settled()
    server.gate.set()
    answers = [await first, await second, await ask(server)]
    assert [list(answer) for answer in answers] == [[nth_node(1)]] * 3
    assert server.asked == 1


async def test_end_of_one_wait_is_not_the_end_of_the_others() -> None:
    """When the trigger that was fetching is cancelled, another one fetches."""
    server = ListServer()
    first, second = ask(server), ask(server)
    await settled()
    first.cancel()
    await settled()
    server.gate.set()
    assert list(await second) == [nth_node(2)]
    assert first.cancelled()


async def test_what_was_created_before_is_in_the_list() -> None:
    """A list that was asked for before a create is not taken for what is there after it, not even on its way."""
    server = ListServer()
    before = ask(server)
    await settled()
    after = ask(server, fresh=Fresh.from_now(60.0))
    await settled()
    server.gate.set()
    assert (list(await before), list(await after)) == ([nth_node(1)], [nth_node(2)])


async def test_projects_do_not_share() -> None:
    """Another project is another list."""
    server = ListServer()
    server.gate.set()
    assert list(await ask(server, "p")) != list(await ask(server, "q"))


async def test_refusal_is_told_to_all_and_not_kept() -> None:
    """An error of the API reaches every trigger that waited for this answer; the next one asks again."""
    server = ListServer()
    server.error = RateLimited("slow down")
    first, second = ask(server), ask(server)
    await settled()
    server.gate.set()
    for task in (first, second):
        with pytest.raises(RateLimited):
            await task
    server.error = None
    assert list(await ask(server)) == [nth_node(2)]


async def test_zone_without_an_answer_is_not_empty() -> None:
    """A zone that did not answer is not taken for one without nodes."""

    class Silent(ListServer):
        async def list_nodes(self, _zone: str = "-") -> Listing[TPUView]:
            return Listing((), (ZONE,))

    with pytest.raises(TransientError, match="did not answer"):
        await ask(Silent())


def test_preemption_is_noticed_within_five_seconds() -> None:
    """A look, a list of the same age at most, and the last request together stay below five seconds."""
    assert 2 * WATCH_POLL + LAST_WORDS <= 5.0
