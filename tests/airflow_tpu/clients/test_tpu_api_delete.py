# SPDX-License-Identifier: Apache-2.0
"""A delete whose answer is lost was asked for: the resource tells."""

from __future__ import annotations

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_messages import OperationView
from airflow_tpu.clients.tpu_retry import CallTiming
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import TransientError
from airflow_tpu.lifecycle.ends.deletion import delete_seen
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.lifecycle.waits.target import Target
from localcloud.rules.settings import Latencies
from localcloud.testing import TIMEOUT, eventually
from tests.airflow_tpu.cloud_env import BRIEF, KEY, CloudEnv, poll_policy
from tests.airflow_tpu.conftest import Open

BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


async def ready(env: CloudEnv, client: TPUClient, queued: bool, key: RunKey = KEY) -> Target:
    """A READY TPU."""
    target = await env.ensure(client, queued, key)
    await until_ready(client, target, poll_policy())
    return target


def method(queued: bool) -> str:
    """The delete call."""
    return "DeleteQueuedResource" if queued else "DeleteNode"


async def delete(client: TPUClient, target: Target, queued: bool) -> OperationView | None:
    """Ask for the delete."""
    return await (client.delete_queued_resource(target.queued) if queued else client.delete_node(target.node))


@BOTH
@pytest.mark.parametrize("deleting", [0.0, 5.0], ids=["gone", "deleting"])
async def test_a_lost_answer_is_no_failure(open_env: Open, queued: bool, deleting: float) -> None:
    """However often the answer is lost the delete is asked for once, and counts as accepted."""
    env = open_env(latencies=Latencies(waiting=0.02, creating=0.1, deleting=deleting))
    async with env.client(BRIEF) as client:
        target = await ready(env, client, queued)
        env.cloud.add_fault("tpu.call", {"method": method(queued)}, times=1000, action="lose-response")
        if not deleting:
            # Gone before anything can be read.
            env.cloud.add_fault("tpu.call", {"method": "Get*"}, action="delay", seconds=0.3)
        found = await delete(client, target, queued)
    assert found is not None
    assert (found.started_at, found.error) == (None, None)
    assert len(env.calls(method(queued))) == 1


@BOTH
async def test_an_end_whose_answer_is_lost_is_a_finished_one(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """The incarnation has not vanished: this delete has ended it, and no failure is reported."""
    await ready(env, client, queued)
    env.cloud.add_fault("tpu.call", {"method": method(queued)}, action="lose-response")
    done = await delete_seen(client, await take_snapshot(client), KEY)
    done.check()
    assert [end.reason for end in done.endings] == [EndReason.FINISHED]
    await until_gone(client, KEY, poll_policy())


async def test_a_hanging_delete_is_asked_for_again(env: CloudEnv) -> None:
    """A delete that hangs ends after one timeout; the request lives on, so it is asked for once more."""
    async with env.client() as client:
        target = await ready(env, client, queued=True)
    env.cloud.add_fault("tpu.call", {"method": "DeleteQueuedResource"}, action="hang")
    async with env.client(CallTiming(answer=0.5, retry=TIMEOUT, pause=0.02)) as client:
        await client.delete_queued_resource(target.queued)
    eventually(env.queued, lambda found: found == {})


@BOTH
async def test_a_delete_that_did_not_arrive_is_asked_for_again(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """A resource that lives on after an outage of the API is deleted by the next call."""
    target = await ready(env, client, queued)
    env.cloud.add_fault("tpu.call", {"method": method(queued)}, times=2, action="error", code=14)
    found = await delete(client, target, queued)
    assert found is not None
    assert found.started_at is not None
    assert len(env.calls(method(queued))) == 3


async def test_a_delete_that_never_arrives_is_a_failure(env: CloudEnv) -> None:
    """A resource that lives on, and whose delete is never answered, is charged: that is an error."""
    async with env.client(BRIEF) as client:
        target = await ready(env, client, queued=False)
        env.cloud.add_fault("tpu.call", {"method": "DeleteNode"}, times=1000, action="error", code=14, message="away")
        with pytest.raises(TransientError, match="away"):
            await client.delete_node(target.node)
    assert env.nodes() == {target.node_id: "READY"}


async def test_each_delete_has_a_request_id_of_its_own(env: CloudEnv, client: TPUClient) -> None:
    """A delete whose operation has failed can be asked for again: the API does not take it for the first one."""
    target = await ready(env, client, queued=True)
    env.cloud.add_fault("tpu.operation", {"verb": "delete"}, action="error", code=13, after=0.05)
    first = await client.delete_queued_resource(target.queued)
    assert first is not None
    eventually(env.queued, lambda found: found == {target.node_id: "ACTIVE"})
    second = await client.delete_queued_resource(target.queued)
    assert second is not None
    assert second.name != first.name
    await until_gone(client, KEY, poll_policy())
