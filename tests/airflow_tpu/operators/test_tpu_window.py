# SPDX-License-Identifier: Apache-2.0
"""A window for the first TPU: what it ends, how, and what it leaves alone."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from airflow_tpu.core.run.trigger_context import TriggerContext, error_event
from airflow_tpu.errors import WindowClosed
from airflow_tpu.lifecycle.ends.incarnation_end import noted_ends
from airflow_tpu.lifecycle.waits.polling import PollPolicy
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.operators.tpu import CloudTPUCreateOperator
from airflow_tpu.stores.grants import store_root
from airflow_tpu.stores.runs import RunStore
from airflow_tpu.triggers.capacity import CloudTPUCapacityTrigger
from localcloud.rules.settings import Latencies
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import BUCKET, KEY, ZONE, CloudEnv, context, now
from tests.airflow_tpu.conftest import Open

NO_CAPACITY: dict[str, Any] = {
    "action": "error",
    "code": 8,
    "message": 'There is no more capacity in the zone "us-central1-f"',
}
OPEN = {"deadline_hours": 1, "start_within_hours": 0.5}
"""With a lease that ends in an hour: the run has just begun, its window is open for half an hour."""

SHUT = {"deadline_hours": 2, "start_within_hours": 0.5}
"""With the same lease: the run began an hour ago, its window closed half an hour ago."""


@pytest.fixture
def runs(env: CloudEnv) -> RunStore:
    """Leases of the grant that the tasks load; the run's ends in an hour."""
    store = RunStore(env.storage, store_root(env.grant))
    store.acquire(KEY, ZONE, now() + dt.timedelta(hours=1))
    return store


def task(**form: Any) -> CloudTPUCreateOperator:
    """The create task of a run with this form."""
    asked = {
        "script": "hello.py",
        "accelerator_type": "v2-8",
        "zone": ZONE,
        "tier": "spot",
        "artifacts_uri": f"gs://{BUCKET}/runs",
    }
    return CloudTPUCreateOperator(
        task_id="create", conf={**asked, "provisioning": "node", **form}, deferrable=True, poll_interval=0.1
    )


def closing(runs: RunStore) -> dt.datetime:
    """When the window of OPEN closes."""
    return runs.read(KEY).lease.expires_at - dt.timedelta(hours=0.5)


def test_wait_for_capacity_ends_with_the_window(
    env: CloudEnv, runs: RunStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task wakes when its window closes, however long the pause would be, and says until when it waits."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__RETRY_SECONDS", "86400")
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, **NO_CAPACITY)
    with pytest.raises(TaskDeferred) as deferred:
        task(**OPEN).execute(context())
    trigger = cast(CloudTPUCapacityTrigger, deferred.value.trigger)
    assert trigger.search["resume_at"] == closing(runs).timestamp() == trigger.watch.closes
    assert f"giving up at {closing(runs):%Y-%m-%d %H:%M} UTC" in caplog.text


def test_closed_window_asks_for_nothing(env: CloudEnv, runs: RunStore) -> None:
    """A try that begins after the window has closed is skipped without one create call."""
    with pytest.raises(AirflowSkipException, match=r"no TPU in time.*Nothing is billed any more"):
        task(**SHUT).execute(context())
    assert env.calls("CreateNode") == []


def test_tpu_that_comes_too_late_is_given_back(env: CloudEnv, runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger knows when the window closes; the task then deletes what it requested and is skipped."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS", "0")
    with pytest.raises(TaskDeferred) as deferred:
        task(**OPEN).execute(context())
    watch = cast(TriggerContext, deferred.value.trigger.watch)
    assert (watch.closing, watch.deadline) == (closing(runs), runs.read(KEY).lease.expires_at)
    with pytest.raises(AirflowSkipException, match="no TPU in time"):
        task(**OPEN).execute_ready(context(), error_event(WindowClosed("no TPU in time.")))
    assert eventually(env.nodes, lambda found: found == {}) == {}
    assert len(noted_ends(runs.read(KEY))) == 1


def test_run_that_has_had_a_tpu_goes_on(env: CloudEnv, runs: RunStore) -> None:
    """Once a TPU was READY the window means nothing: a repeated task uses it, or makes the next one."""
    assert task().execute(context())["zone"] == ZONE
    assert task(**SHUT).execute(context())["zone"] == ZONE
    assert len(env.calls("CreateNode")) == 1


async def test_wait_says_since_when_and_ends_at_the_window(open_env: Open) -> None:
    """The line counts from when the wait began in whatever process, and the window's end has an error of its own."""
    env = open_env(latencies=Latencies(creating=600.0))
    async with env.client() as client:
        target = await env.provisioner(client, env.order(), env.lease()).ensure()
        began = now() - dt.timedelta(seconds=300)
        poll_policy = PollPolicy(0.05, now() + dt.timedelta(hours=1), began, now())
        with pytest.raises(WindowClosed, match=rf"waiting for .*: \d+ min since {began:%H:%M:%S} UTC"):
            await until_ready(client, target, poll_policy)
