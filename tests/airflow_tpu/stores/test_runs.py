# SPDX-License-Identifier: Apache-2.0
"""The lease object: taken, taken again, changed by its holder only, given back."""

from __future__ import annotations

import dataclasses
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from airflow_tpu.core.run.job import LastAttempt
from airflow_tpu.core.run.run_record import Holder, RunRecord
from airflow_tpu.core.tpu.identity import VARIABLE
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import LeaseHeld, LeaseLost, TransientError
from airflow_tpu.hooks.artifacts import ArtifactsHook
from tests.airflow_tpu.cloud_env import KEY, ZONE, CloudEnv, now
from tests.airflow_tpu.identities import AIRFLOW


def test_acquired_lease_is_read_back(env: CloudEnv) -> None:
    """What one task writes another task reads, to the last field."""
    record = env.lease()
    record = env.runs.update(record, lambda found: found.with_life("n-1", ready_at=now(), training_seconds=2.5))
    assert env.runs.read(KEY) == record


def test_reading_without_a_lease_says_what_to_clear(env: CloudEnv) -> None:
    """A task that is cleared alone after the teardown fails and names the setup task."""
    with pytest.raises(LeaseLost, match="setup task 'lease'"):
        env.runs.read(KEY)


def test_taking_it_again_fences_the_older_attempt(env: CloudEnv) -> None:
    """The older token changes nothing any more; counters and lives are kept."""
    older = env.runs.update(
        env.lease(), lambda found: found.next_incarnation().next_attempt(LastAttempt(node_id="n-1"))
    )
    newer = env.runs.acquire(KEY, ZONE, now() + dt.timedelta(hours=2))
    assert newer.lease.token != older.lease.token
    assert (newer.incarnation, newer.last_attempt().number, newer.last_attempt().node_id) == (1, 1, "n-1")
    with pytest.raises(LeaseLost, match="newer attempt"):
        env.runs.update(older, RunRecord.next_incarnation)
    assert env.runs.read(KEY) == newer


def test_update_builds_on_what_is_there(env: CloudEnv) -> None:
    """Two tasks of one attempt lose none of each other's changes, however old their copies are."""
    record = env.lease()
    env.runs.update(record, lambda found: found.next_attempt(LastAttempt(node_id="n-1")))
    env.runs.update(record, lambda found: found.with_life("n-1", artifact_bytes=7))
    found = env.runs.read(KEY)
    assert (found.last_attempt().number, found.life("n-1").artifact_bytes) == (1, 7)


def test_lost_answers_do_not_lose_the_lease(env: CloudEnv) -> None:
    """A lease whose write took effect without an answer is held, with the token that was written."""
    env.cloud.add_fault("gcs.request", {"method": "POST"}, action="lose-response")
    record = env.lease()
    assert env.cloud.cloud.faults.unused() == []
    assert env.runs.update(record, RunRecord.next_incarnation).lease.token == record.lease.token


def test_ten_at_once_leave_one_holder(env: CloudEnv) -> None:
    """Of ten threads that take the lease together one ends up with it; none of the others can change anything."""
    start = Barrier(10)

    def take(_: int) -> RunRecord | None:
        own = dataclasses.replace(env, storage=ArtifactsHook())
        start.wait(30)
        try:
            return own.lease()
        except TransientError:
            return None  # lost every race: told so, and holds nothing

    with ThreadPoolExecutor(10) as pool:
        taken = [record for record in pool.map(take, range(10)) if record is not None]
    holder = env.runs.read(KEY)
    assert [record for record in taken if _may_change(env, record)] == [holder]


def _may_change(env: CloudEnv, record: RunRecord) -> bool:
    try:
        env.runs.update(record, lambda found: found)
    except LeaseLost:
        return False
    return True


def test_runs_do_not_share_a_lease(env: CloudEnv) -> None:
    """Mapped tasks and other runs have leases of their own."""
    env.lease()
    other = env.lease(RunKey(AIRFLOW, KEY.dag_id, KEY.run_id, 3))
    env.runs.release(KEY)
    assert env.runs.read(other.key).lease.token == other.lease.token


def test_release_is_idempotent(env: CloudEnv) -> None:
    """Giving back twice succeeds, and a task that comes later learns that the lease is gone."""
    record = env.lease()
    env.runs.release(KEY)
    env.runs.release(KEY)
    with pytest.raises(LeaseLost):
        env.runs.update(record, RunRecord.next_incarnation)


def test_lease_of_another_run_of_these_ids_is_refused_until_it_expires(env: CloudEnv) -> None:
    """The error of a second DAG run of the same ids names the holder, the expiry and what to do; it changes nothing."""
    start, end = now(), now() + dt.timedelta(hours=1)
    held = env.runs.acquire(KEY, ZONE, end, Holder(start, 0))
    other = Holder(start + dt.timedelta(minutes=1), 0)
    with pytest.raises(LeaseHeld) as caught:
        env.runs.acquire(KEY, ZONE, end, other)
    times = (f"started at {start:%Y-%m-%d %H:%M:%S} UTC", f"until {end:%Y-%m-%d %H:%M} UTC")
    for words in (*times, f"delete {env.runs.uri(KEY)}", f"the Variable {VARIABLE}"):
        assert words in str(caught.value)
    assert env.runs.read(KEY) == held
    env.runs.update(held, lambda record: record.renewed(record.lease.token, now()))
    assert env.runs.acquire(KEY, ZONE, end, other).lease.holder == other
