# SPDX-License-Identifier: Apache-2.0
"""What ends with a task that is ended, and what does not: with Airflow's own triggerer and socket to the task."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property, partial

import pytest
from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder, TriggerRunner
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core import json_form
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.run.trigger_context import TRIGGER_CONTEXT_FORM, TriggerContext
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.training.follow import RunningJob
from airflow_tpu.lifecycle.training.launch import launch
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.stores.grant_stores import Stores
from airflow_tpu.stores.grants import store_root
from airflow_tpu.stores.runs import RunStore
from airflow_tpu.triggers.run import CloudTPURunTrigger
from localcloud.testing import eventually_async
from tests.airflow_tpu.attempts import ENDLESS, NODE, NODE_ID, ready, run_context, script
from tests.airflow_tpu.cloud_env import FORM, KEY, CloudEnv, poll_policy
from tests.airflow_tpu.supervisor import Supervisor

pytestmark = pytest.mark.slow

ENDED = pytest.mark.parametrize("state", ["failed", None], ids=["marked-failed", "deleted"])
WANTED = pytest.mark.parametrize(
    ("state", "taken_over"),
    [("deferred", False), ("success", False), ("running", True)],
    ids=["moved", "marked-success", "cleared"],
)
NUMBER = 1
"""Of the only trigger."""


@pytest.fixture
async def work(env: CloudEnv, client: TPUClient) -> RunContext:
    """A run that has a READY TPU."""
    work = run_context(script(env, ENDLESS))
    await ready(work, client)
    return work


def trigger_of(work: RunContext, record: RunRecord, job: RunningJob) -> CloudTPURunTrigger:
    """The trigger that follows a training, as a triggerer has made it."""
    until = poll_policy().until.timestamp()
    connections = Connections()
    watch = TriggerContext(KEY, record.lease.token, connections.gcp_conn_id, connections.ssh_conn_id, "", 0.1, until)
    trigger = CloudTPURunTrigger(TRIGGER_CONTEXT_FORM.to_json(watch), json_form.to_json(job))
    trigger.task_instance = TaskInstanceDTO(  # type: ignore[assignment]  # what a triggerer gives it
        id=uuid.uuid4(),
        dag_version_id=uuid.uuid4(),
        task_id="train",
        dag_id=KEY.dag_id,
        run_id=KEY.run_id,
        try_number=1,
        map_index=-1,
        queue="default",
        pool_slots=1,
        priority_weight=1,
    )
    return trigger


async def delivered(work: RunContext, job: RunningJob) -> int:
    """Bytes of the log that a follower has acknowledged."""
    async with RunSession(job.address, work.clients.access.login) as session:
        return (await session.status(job.ref)).delivered


def take_over(work: RunContext, record: RunRecord) -> None:
    """Let a newer attempt take the lease."""
    work.stores.runs.acquire(KEY, record.zone, record.lease.expires_at)


def processes(env: CloudEnv) -> list[int]:
    """What runs on the TPU VMs."""
    return env.cloud.call(env.cloud.cloud.worker_pool.processes)


async def states(env: CloudEnv) -> dict[str, str]:
    """State of every node, for a wait that deletes nothing."""
    return env.nodes()


@asynccontextmanager
async def triggerer(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TriggerRunner]:
    """Airflow's runner of triggers, connected to its supervisor."""
    reader, writer = await asyncio.open_connection(sock=supervisor.socket)
    runner = TriggerRunner()
    runner.comms_decoder = TriggerCommsDecoder(async_reader=reader, async_writer=writer, socket=supervisor.socket)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", runner.comms_decoder, raising=False)
    await runner.comms_decoder.start_reader()
    yield runner
    reading = runner.comms_decoder._reader_task
    assert reading is not None
    reading.cancel()
    await asyncio.wait([reading])
    writer.close()


async def cancelled(
    work: RunContext, client: TPUClient, monkeypatch: pytest.MonkeyPatch, state: str | None, taken_over: bool = False
) -> None:
    """Follow a training in a triggerer, then let the triggerer cancel the trigger as it does when the task is acted on.

    :param state: of the task by then.
    :param taken_over: a newer attempt holds the lease by then.
    """
    record = work.stores.runs.read(KEY)
    job = await launch(client, work, record, NODE)
    with Supervisor(state) as supervisor:
        async with triggerer(supervisor, monkeypatch) as runner:
            following = asyncio.create_task(runner.run_trigger(NUMBER, trigger_of(work, record, job)))
            runner.triggers[NUMBER] = {"task": following, "name": "train", "is_watcher": False, "events": 0}
            await eventually_async(lambda: delivered(work, job), bool)
            if taken_over:
                take_over(work, record)
            runner.to_cancel.append(NUMBER)
            await runner.cancel_triggers()
            await asyncio.wait([following])
    assert following.cancelled()
    assert "GetTaskStates" in supervisor.asked


@ENDED
async def test_trigger_of_an_ended_task(
    env: CloudEnv, client: TPUClient, work: RunContext, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """The triggerer calls ``on_kill``, which asks for the delete of the TPU, once, and the training goes with it."""
    await cancelled(work, client, monkeypatch, state)
    await eventually_async(partial(states, env), lambda found: found == {})
    assert (len(env.calls("DeleteNode")), processes(env)) == (1, [])


@WANTED
async def test_trigger_whose_tpu_is_still_wanted(
    env: CloudEnv, client: TPUClient, work: RunContext, monkeypatch: pytest.MonkeyPatch, state: str, taken_over: bool
) -> None:
    """A trigger that only moves, a success, and an attempt that a newer one has replaced leave both alone."""
    await cancelled(work, client, monkeypatch, state, taken_over)
    assert (env.nodes(), env.calls("DeleteNode")) == ({NODE_ID: "READY"}, [])
    assert processes(env) != []


def kill_task(work: RunContext, record: RunRecord, monkeypatch: pytest.MonkeyPatch, state: str | None) -> None:
    """Let a task that has a TPU be ended in its worker, as on SIGTERM.

    :param record: as the task has read it when it began.
    :param state: of the task by then.
    """
    task = CloudTPUTrainOperator(task_id="train", conf=FORM)
    task.arm(work, record)
    with Supervisor(state) as supervisor:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=supervisor.socket), raising=False)
        task.on_kill()
    assert supervisor.asked == ["GetTaskStates"]


@ENDED
async def test_task_that_is_ended_in_its_worker(
    env: CloudEnv, client: TPUClient, work: RunContext, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """The task asks for the delete of the TPU, once, and does not wait for its end."""
    kill_task(work, work.stores.runs.read(KEY), monkeypatch, state)
    await eventually_async(partial(states, env), lambda found: found == {})
    assert (len(env.calls("DeleteNode")), env.nodes()) == (1, {})


@pytest.mark.parametrize(("state", "taken_over"), [("success", False), ("running", True)], ids=["success", "cleared"])
async def test_task_whose_tpu_is_still_wanted(
    env: CloudEnv, work: RunContext, monkeypatch: pytest.MonkeyPatch, state: str, taken_over: bool
) -> None:
    """A task that was marked a success, and one that a newer attempt has replaced, leave the TPU alone."""
    record = work.stores.runs.read(KEY)
    if taken_over:
        take_over(work, record)
    kill_task(work, record, monkeypatch, state)
    assert (env.nodes(), env.calls("DeleteNode")) == ({NODE_ID: "READY"}, [])


class Silent(RunStore):
    """Leases in a bucket that does not answer until the test lets it."""

    answers = threading.Event()

    def find(self, key: RunKey) -> RunRecord | None:
        """Wait, as Cloud Storage's client does, far longer than a killed task may live."""
        self.answers.wait(120.0)
        return super().find(key)


class Deaf(RunContext):
    """A run whose bucket does not answer."""

    @cached_property
    def stores(self) -> Stores:
        """With leases that cannot be read."""
        return replace(super().stores, runs=Silent(self.clients.storage, store_root(self.grant)))


async def test_task_that_is_ended_while_the_bucket_does_not_answer(
    env: CloudEnv, work: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question for a newer attempt does not use up the seconds that a killed task has for its one request."""
    deaf = Deaf(KEY, FORM, Connections())
    _ = deaf.stores, deaf.clients.storage.get_conn()  # a task has used them by then
    try:
        kill_task(deaf, work.stores.runs.read(KEY), monkeypatch, "failed")
        await eventually_async(partial(states, env), lambda found: found == {})
    finally:
        Silent.answers.set()
