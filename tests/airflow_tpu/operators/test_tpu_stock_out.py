# SPDX-License-Identifier: Apache-2.0
"""A create task without capacity: it leaves its worker, says what it waits for, or asks elsewhere."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_tpu.consequences import BEING_DELETED, MAY_LIVE
from airflow_tpu.core.run.run_record import Lease, RunRecord
from airflow_tpu.core.run.trigger_context import TRIGGER_CONTEXT_FORM, TriggerContext
from airflow_tpu.errors import ConfigError, QuotaExceeded, StockOut
from airflow_tpu.operators.tpu import CloudTPUCreateOperator
from airflow_tpu.stores.runs import RunStore
from airflow_tpu.triggers.capacity import CloudTPUCapacityTrigger
from tests.airflow_tpu.cloud_env import FORM, KEY, ZONE, CloudEnv, context, now

NO_CAPACITY: dict[str, Any] = {
    "action": "error",
    "code": 8,
    "message": 'There is no more capacity in the zone "us-central1-f"',
}
QUOTA = "Quota limit 'TPUV2sPreemptiblePerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone us-central1-f."

Create = Callable[..., Any]


@pytest.fixture
def runs(env: CloudEnv) -> RunStore:
    """Leases of the grant."""
    return env.runs


@pytest.fixture
def create(runs: RunStore) -> Create:
    """Execute the create task of a run whose lease ends in an hour, as a worker does."""
    runs.acquire(KEY, ZONE, now() + dt.timedelta(hours=1))

    def execute(deferrable: bool = True, **conf: Any) -> Any:
        asked = {**FORM, "provisioning": "node", **conf}
        task = CloudTPUCreateOperator(task_id="create", conf=asked, deferrable=deferrable, poll_interval=0.1)
        return task.execute(context())

    return execute


def asked(env: CloudEnv) -> list[str]:
    """Zone of each create call."""
    return [str(call["resource"]).split("/")[3] for call in env.calls("CreateNode")]


def test_worker_slot_is_given_up(
    env: CloudEnv, create: Create, runs: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The task is deferred, not asleep; since when it waits is in the lease, so that it survives every process."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, **NO_CAPACITY)
    before = now()
    with pytest.raises(TaskDeferred) as deferred:
        create()
    trigger = deferred.value.trigger
    assert isinstance(trigger, CloudTPUCapacityTrigger)
    assert deferred.value.method_name == "execute_again"
    search = runs.read(KEY).capacity_search
    assert search is not None
    assert before <= search.since <= now()
    assert trigger.search["resume_at"] > search.since.timestamp()
    assert "waiting for capacity for spot v2-8 in us-central1-f" in caplog.text
    assert env.nodes() == {}


def test_wait_ends_with_the_lease(
    env: CloudEnv, create: Create, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next check is never after the deadline, however long the pause would be."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__RETRY_SECONDS", "86400")
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, **NO_CAPACITY)
    with pytest.raises(TaskDeferred) as deferred:
        create()
    trigger = cast(CloudTPUCapacityTrigger, deferred.value.trigger)
    assert trigger.search["resume_at"] == runs.read(KEY).lease.expires_at.timestamp()


async def test_trigger_says_what_it_waits_for(capfd: pytest.CaptureFixture[str]) -> None:
    """Since when, next check and deadline are in the log of the deferred task; then it wakes the task."""
    record = RunRecord(KEY, Lease("token", now() + dt.timedelta(hours=1)), ZONE)
    until = record.lease.expires_at.timestamp()
    watch = TriggerContext(KEY, record.lease.token, "google_cloud_default", "ssh", "", 1.0, until)
    times = {"since": time.time() - 90, "resume_at": time.time() + 0.3}
    trigger = CloudTPUCapacityTrigger(
        TRIGGER_CONTEXT_FORM.to_json(watch), {"what": "capacity for spot v2-8 in here", **times}
    )
    path, arguments = trigger.serialize()
    assert path.endswith("capacity.CloudTPUCapacityTrigger")
    events = [event.payload async for event in CloudTPUCapacityTrigger(**arguments).run()]
    assert events == [{"status": "again"}]
    assert time.time() >= times["resume_at"]
    told = re.search(r"waiting for capacity for spot v2-8 in here: (\d+) s since", capfd.readouterr().out)
    assert told is not None
    assert int(told[1]) >= 90


def test_ready_tpu_ends_the_search(env: CloudEnv, create: Create, runs: RunStore) -> None:
    """With a TPU there is nothing to wait for: the next stock-out begins a search of its own."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, **NO_CAPACITY)
    with pytest.raises(TaskDeferred):
        create()
    assert create()["zone"] == ZONE
    assert runs.read(KEY).capacity_search is None


def test_worker_that_may_not_defer_is_tried_again(env: CloudEnv, create: Create) -> None:
    """Without a triggerer the try ends, and Airflow's own retry waits without a worker slot."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, **NO_CAPACITY)
    with pytest.raises(StockOut, match=BEING_DELETED):
        create(deferrable=False)


def test_fault_of_a_connection_leaves_the_tpu_to_the_teardown(
    env: CloudEnv, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later try that meets a broken SSH connection deletes nothing: the TPU of the first may be alive."""
    create()
    monkeypatch.setenv("AIRFLOW_CONN_TPU_SSH_DEFAULT", "ssh://nobody@")
    with pytest.raises(ConfigError, match=f"; {MAY_LIVE}"):
        create()
    assert len(env.nodes()) == 1


def test_walk_moves_lease_and_reservation(env: CloudEnv, create: Create, runs: RunStore) -> None:
    """The alternative is in the lease, the reservation moves with it, and the TPU is where both say."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, times=2, **NO_CAPACITY)
    done = create(on_stock_out="walk")
    record = runs.read(KEY)
    assert asked(env) == [ZONE, ZONE, "us-central1-a"]
    assert record.alternative is not None
    assert (done["zone"], record.zone, record.alternative.zone) == ("us-central1-a",) * 3
    (entry,) = env.reservations.read().entries
    assert (entry.zone, entry.accelerator_type, entry.chips) == ("us-central1-a", "v5litepod-4", 4)


def test_walk_waits_when_all_were_tried(env: CloudEnv, create: Create, runs: RunStore) -> None:
    """After the last alternative the task waits and begins again with the form's."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, times=3, **NO_CAPACITY)
    with pytest.raises(TaskDeferred):
        create(on_stock_out="walk")
    record = runs.read(KEY)
    assert len(asked(env)) == 3
    assert record.alternative is not None
    assert record.capacity_search is not None
    assert (record.alternative.zone, record.alternative.tier, record.capacity_search.rounds) == (ZONE, "spot", 1)
    assert create(on_stock_out="walk")["zone"] == ZONE


def test_walk_passes_over_a_row_without_room(env: CloudEnv, create: Create, runs: RunStore) -> None:
    """A row that others have used up is asked for permission, not for a TPU; the next one is taken."""
    grant = env.grant.allowances[0]
    assert (grant.count, grant.tier) == (5, "on-demand")
    for number in range(grant.count):
        env.foreign_node(f"colleague-{number}")
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, **NO_CAPACITY)
    assert create(on_stock_out="walk")["zone"] == "us-central1-a"
    assert asked(env) == [ZONE, "us-central1-a"]


def test_full_quota_names_what_is_dead(env: CloudEnv, create: Create) -> None:
    """The message names every terminated node in the project and who deletes it."""
    env.foreign_node("colleague-1")
    env.cloud.preempt("colleague-1")
    env.cloud.add_fault("tpu.call", {"method": "CreateNode"}, action="error", code=8, message=QUOTA)
    with pytest.raises(QuotaExceeded, match=r"colleague-1 \(not of this package: delete it by hand\)"):
        create()


def test_full_quota_without_terminated_nodes_says_so(env: CloudEnv, create: Create) -> None:
    """Without a dead resource the message names none."""
    env.cloud.add_fault("tpu.call", {"method": "CreateNode"}, action="error", code=8, message=QUOTA)
    with pytest.raises(QuotaExceeded, match="what holds the quota is alive"):
        create()
