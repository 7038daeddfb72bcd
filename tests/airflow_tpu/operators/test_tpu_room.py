# SPDX-License-Identifier: Apache-2.0
"""A create task whose row other runs of this Airflow use: it waits in no worker, and has its TPU when one has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import DeadlineExceeded, GrantViolation, LeaseLost, RowInUse
from airflow_tpu.operators.lease import CloudTPULeaseOperator
from airflow_tpu.operators.tpu import CloudTPUCreateOperator, CloudTPUDeleteOperator
from airflow_tpu.triggers.capacity import CloudTPUCapacityTrigger
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import FORM, STARTED, CloudEnv, context, now
from tests.airflow_tpu.identities import AIRFLOW

KEYS = [RunKey(AIRFLOW, "tpu_train", "manual", index) for index in range(8)]
"""A mapped group; the grant has five on-demand devices."""

Run = Callable[..., Any]


@pytest.fixture
def run(env: CloudEnv) -> Run:
    """Execute one task of one mapped instance, as a worker does."""

    def execute(operator: type, key: RunKey, method: str = "execute", deferrable: bool = True, **conf: Any) -> Any:
        asked = {**FORM, "tier": "on-demand", "provisioning": "node", **conf}
        task = operator(task_id="task", conf=asked, poll_interval=0.05, deferrable=deferrable)
        more = {} if method == "execute" else {"event": {"status": "again"}}
        return getattr(task, method)(context(key), **more)

    return execute


@pytest.fixture
def waiting(run: Run, env: CloudEnv) -> Callable[..., CloudTPUCapacityTrigger]:
    """Fill the row with our own runs; the trigger that a run then waits in."""

    def fill(key: RunKey, **conf: Any) -> CloudTPUCapacityTrigger:
        for held in KEYS[:5]:
            if env.reservations.read().of(held.digest) is None:
                run(CloudTPULeaseOperator, held)
        run(CloudTPULeaseOperator, key, **conf)
        with pytest.raises(TaskDeferred) as deferred:
            run(CloudTPUCreateOperator, key, **conf)
        assert deferred.value.method_name == "execute_again"
        path, arguments = cast(CloudTPUCapacityTrigger, deferred.value.trigger).serialize()
        assert path.endswith("capacity.CloudTPUCapacityTrigger")
        return CloudTPUCapacityTrigger(**arguments)

    return fill


def hours_after_the_start(seconds: float) -> float:
    """An instant some seconds from now, as the form counts it."""
    return ((now() - STARTED).total_seconds() + seconds) / 3600


async def events(trigger: CloudTPUCapacityTrigger) -> list[Any]:
    """What a trigger yields."""
    return [event.payload async for event in trigger.run()]


@pytest.fixture(autouse=True)
def no_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No executor reports a deferral here, so no event has to be held back for it."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__EVENT_HOLD_SECONDS", "0")


async def test_room_that_comes_back_ends_the_wait(
    env: CloudEnv, run: Run, waiting: Callable[..., CloudTPUCapacityTrigger], caplog: pytest.LogCaptureFixture
) -> None:
    """The log says for what, who has it, since when and until when; the run that ends makes place, and only then."""
    trigger = await asyncio.to_thread(waiting, KEYS[5])
    wait = asyncio.create_task(events(trigger))
    looks = len(env.calls("ListNodes"))
    await asyncio.to_thread(eventually, lambda: len(env.calls("ListNodes")), lambda found: found > looks + 1)
    assert not wait.done()
    await asyncio.to_thread(run, CloudTPUDeleteOperator, KEYS[0])
    assert await wait == [{"status": "again"}]
    for words in (
        "waiting for room in the grant for on-demand v2-8 in us-central1-f (1 asked and 5 held are more than",
        f"reservation of {KEYS[0].name}",
        " s since ",
        "giving up at ",
    ):
        assert words in caplog.text
    assert (await asyncio.to_thread(run, CloudTPUCreateOperator, KEYS[5], "execute_again"))["zone"] == FORM["zone"]
    assert env.runs.read(KEYS[5]).capacity_search is None


async def test_the_oldest_wait_is_the_first(
    env: CloudEnv, run: Run, waiting: Callable[..., CloudTPUCapacityTrigger]
) -> None:
    """Of two that wait the first one's task is woken by a device that comes back, and a newcomer does not get it."""
    first, second = [await asyncio.to_thread(waiting, key) for key in KEYS[5:7]]
    waits = [asyncio.create_task(events(trigger)) for trigger in (second, first)]
    await asyncio.to_thread(run, CloudTPUDeleteOperator, KEYS[0])
    assert await waits[1] == [{"status": "again"}]
    await asyncio.to_thread(waiting, KEYS[7])
    assert not waits[0].done()
    assert (await asyncio.to_thread(run, CloudTPUCreateOperator, KEYS[5], "execute_again"))["zone"] == FORM["zone"]
    await asyncio.to_thread(run, CloudTPUDeleteOperator, KEYS[1])
    assert await waits[0] == [{"status": "again"}]


async def test_calls_do_not_grow_with_the_waits(env: CloudEnv, waiting: Callable[..., CloudTPUCapacityTrigger]) -> None:
    """Three waits in one triggerer make the lists, and read the reservations, as often as one does."""
    triggers = [await asyncio.to_thread(waiting, key) for key in KEYS[5:]]
    waits = [asyncio.create_task(events(trigger)) for trigger in triggers]
    before = len(env.calls("ListNodes"))
    await asyncio.to_thread(eventually, lambda: len(env.calls("ListNodes")), lambda found: found >= before + 4)
    for wait in waits:
        wait.cancel()
    said = [call["resource"] for call in env.calls("ListNodes")[before:]]
    assert len(said) <= 7  # one for each look, whose pauses double; three times as many by three waits of their own


async def test_the_wait_ends_with_the_deadline(
    env: CloudEnv, run: Run, waiting: Callable[..., CloudTPUCapacityTrigger]
) -> None:
    """At the deadline the trigger hands over to the task, which fails with it; the teardown leaves nothing."""
    await asyncio.to_thread(waiting, KEYS[6])
    conf = {"deadline_hours": hours_after_the_start(20)}
    trigger = await asyncio.to_thread(waiting, KEYS[5], **conf)
    assert await events(trigger) == [{"status": "again"}]
    with pytest.raises(DeadlineExceeded):
        await asyncio.to_thread(run, CloudTPUCreateOperator, KEYS[5], "execute_again", **conf)
    await asyncio.to_thread(run, CloudTPUDeleteOperator, KEYS[5])
    with pytest.raises(LeaseLost):
        env.runs.read(KEYS[5])
    assert env.nodes() == {}


async def test_the_wait_ends_with_the_window(run: Run, waiting: Callable[..., CloudTPUCapacityTrigger]) -> None:
    """A run that wants its TPU within some hours is skipped when they are over, as without capacity."""
    await asyncio.to_thread(waiting, KEYS[6])
    conf = {"start_within_hours": hours_after_the_start(20)}
    trigger = await asyncio.to_thread(waiting, KEYS[5], **conf)
    assert await events(trigger) == [{"status": "again"}]
    with pytest.raises(AirflowSkipException, match="no TPU in time"):
        await asyncio.to_thread(run, CloudTPUCreateOperator, KEYS[5], "execute_again", **conf)


async def test_killed_while_it_waits(env: CloudEnv, run: Run, waiting: Callable[..., CloudTPUCapacityTrigger]) -> None:
    """A person who ends the task ends the wait; nothing is deleted, and nothing is left behind after the teardown."""
    trigger = await asyncio.to_thread(waiting, KEYS[5])
    await asyncio.to_thread(trigger._end_attempt)
    await asyncio.to_thread(run, CloudTPUDeleteOperator, KEYS[5])
    with pytest.raises(LeaseLost):
        env.runs.read(KEYS[5])
    assert KEYS[5].name not in {entry.run for entry in env.reservations.read().entries}
    assert env.calls("DeleteNode") == env.calls("CreateNode") == []


def test_worker_that_may_not_defer_is_tried_again(run: Run, waiting: Callable[..., CloudTPUCapacityTrigger]) -> None:
    """Without a triggerer the try ends, and Airflow's own retry waits without a worker slot."""
    waiting(KEYS[5])
    with pytest.raises(RowInUse, match="nothing was created"):
        run(CloudTPUCreateOperator, KEYS[5], deferrable=False)


def test_a_search_takes_another_row(run: Run, waiting: Callable[..., CloudTPUCapacityTrigger]) -> None:
    """A run that may ask for other rows does so at once, and does not wait."""
    for key in KEYS[:5]:
        run(CloudTPULeaseOperator, key)
    conf = {"on_stock_out": "walk"}
    run(CloudTPULeaseOperator, KEYS[5], **conf)
    assert run(CloudTPUCreateOperator, KEYS[5], **conf)["tier"] == "spot"


def test_others_take_the_room_of_a_run_that_never_had_any(env: CloudEnv, run: Run) -> None:
    """A row that other people have filled since the lease is a refusal, not a wait."""
    run(CloudTPULeaseOperator, KEYS[5])
    env.reservations.release(KEYS[5].digest)
    for number in range(5):
        env.foreign_node(f"colleague-{number}")
    with pytest.raises(GrantViolation, match="colleague-0"):
        run(CloudTPUCreateOperator, KEYS[5])
