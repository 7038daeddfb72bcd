# SPDX-License-Identifier: Apache-2.0
"""Fifty processes at once never exceed an allowance together: the reservations object against a real object store."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.grant.authorize import Permit
from airflow_tpu.core.grant.reservations import Reservations
from airflow_tpu.core.run.expiry import LeaseState
from airflow_tpu.core.run.run_record import Lease, RunRecord
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import GrantError, GrantUnknown, GrantViolation, RowInUse, TransientError
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.ends.forgotten import release_forgotten
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot, take_snapshot
from airflow_tpu.lifecycle.run_context import GrantContext
from airflow_tpu.lifecycle.waits.target import Target
from airflow_tpu.stores.reservations import ReservationStore
from airflow_tpu.stores.runs import RunStore
from tests.airflow_tpu.cloud_env import BUCKET, KEY, ROOT, SHARED_ROOT, ZONE, CloudEnv, now
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW

NOBODY = ProjectSnapshot((), (), ())
ON_DEMAND: dict[str, Any] = {"tier": Tier.ON_DEMAND}  # 5 devices in the grant
V5E: dict[str, Any] = {"accelerator_type": "v5litepod-4", "zone": "us-central1-a"}  # 64 chips: 16 of these

Outcome = Permit | GrantError


def record_of(number: int, hours: float = 1.0) -> RunRecord:
    """The lease of the DAG run of that number, as its other tasks know it."""
    return RunRecord(
        RunKey(AIRFLOW, "tpu_train", f"run {number}"), Lease("token", now() + dt.timedelta(hours=hours)), ZONE
    )


def store() -> ReservationStore:
    """The store as one process has it: a connection of its own; it tries again at once."""
    return ReservationStore(ArtifactsHook(), SHARED_ROOT, pause=0.05)


def reserve(env: CloudEnv, record: RunRecord, **kind: Any) -> Permit:
    """Do what the lease task of a run does; the API shows nobody's TPU yet."""
    return env.order(**kind).reserve(store(), NOBODY, record, now())


def at_once(count: int, action: Callable[[int], Any]) -> list[Any]:
    """Run an action in so many threads that start together; a refusal by the grant is a result."""
    start = Barrier(count)

    def one(number: int) -> Any:
        start.wait(60)
        try:
            return action(number)
        except GrantError as refusal:
            return refusal

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.slow
def test_fifty_processes_get_exactly_what_the_grant_has(env: CloudEnv) -> None:
    """Of fifty processes that ask in the same moment as many as have room hold chips, no more and no fewer."""
    rooms = {5: ON_DEMAND, 16: V5E}
    specs = [json.dumps(json_form.to_json(env.order(**kind).spec)) for kind in rooms.values()]
    command = [sys.executable, "-m", "tests.airflow_tpu.concurrent_requests", "50", *specs]
    path = os.pathsep.join(entry or "." for entry in sys.path)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]
    holders = {entry.owner for entry in store().read().entries}
    answers = json.loads(done.stdout.splitlines()[-1])
    assert len(holders) == sum(rooms)
    for room, answered in zip(rooms, answers, strict=True):
        got = {owner for owner, refusal in answered if not refusal}
        assert (len(answered), len(got), got - holders) == (50, room, set())
        assert all("are more than" in refusal for owner, refusal in answered if owner not in got)


def test_runs_that_create_at_once_stay_inside_the_grant(env: CloudEnv) -> None:
    """Of ten runs that go for five devices together, with TPUs made between the looks, five create one node each."""

    def create(number: int) -> Target:
        async def ensured() -> Target:
            async with env.client() as client:
                return await own.provisioner(client, env.order(**ON_DEMAND), record).ensure()

        own = dataclasses.replace(env, storage=ArtifactsHook())
        record = own.lease(RunKey(AIRFLOW, "tpu_train", f"run {number}"))
        return asyncio.run(ensured())

    targets = [outcome for outcome in at_once(10, create) if isinstance(outcome, Target)]
    assert len(targets) == 5
    assert set(env.nodes()) == {target.node_id for target in targets}


def test_two_airflows_with_prefixes_of_their_own_share_the_reservations(env: CloudEnv) -> None:
    """Of two that ask for the last of five devices in the same second one gets it, although neither shows yet.

    The Airflow whose own runs hold the other four waits for them; the other one is refused.
    """
    for number in range(4):
        reserve(env, record_of(number), **ON_DEMAND)

    def ask(number: int) -> Permit:
        grant = dataclasses.replace(env.grant, prefix=("anna", "bert")[number])
        stores = GrantContext(Connections(), grant).stores
        key = RunKey((AIRFLOW, OTHER_AIRFLOW)[number], "nightly", "scheduled__1")
        record = stores.runs.acquire(key, ZONE, now() + dt.timedelta(hours=1))
        return env.order(**ON_DEMAND).reserve(stores.reservations, NOBODY, record, now())

    ours, others = at_once(2, ask)
    assert (type(ours), type(others)) in ((Permit, GrantViolation), (RowInUse, Permit))


def test_repeated_take_is_the_same_reservation(env: CloudEnv) -> None:
    """A task that is tried again holds what it held, and no second object is written."""
    record = record_of(1)
    reserve(env, record)
    before = env.storage.listing(f"{SHARED_ROOT}/reservations.json")
    assert reserve(env, record).allowance_text == "100 spot v2-8 devices in us-central1-f"
    assert env.storage.listing(f"{SHARED_ROOT}/reservations.json") == before


def test_lost_answers_take_no_chips_twice(env: CloudEnv) -> None:
    """A reservation whose write took effect without an answer is held once."""
    env.cloud.add_fault("gcs.request", {"method": "POST"}, action="lose-response")
    reserve(env, record_of(1))
    assert env.cloud.cloud.faults.unused() == []
    assert [entry.owner for entry in store().read().entries] == [record_of(1).key.digest]


def test_refusal_reserves_nothing(env: CloudEnv) -> None:
    """What the grant does not cover leaves no trace that others would have to count."""
    with pytest.raises(GrantViolation):
        reserve(env, record_of(1), accelerator_type="v2-8", zone="us-central1-b")
    assert store().read() == Reservations()


def test_released_chips_are_free_at_once(env: CloudEnv) -> None:
    """The sixth run gets a device as soon as one of five has given its own back; giving back twice succeeds."""
    for number in range(5):
        reserve(env, record_of(number), **ON_DEMAND)
    with pytest.raises(RowInUse):
        reserve(env, record_of(5), **ON_DEMAND)
    for _ in range(2):
        store().release(record_of(0).key.digest)
    assert reserve(env, record_of(5), **ON_DEMAND)


def test_those_who_lose_every_race_say_so(env: CloudEnv) -> None:
    """A writer without patience fails with an error that a retry may cure, and reserves nothing."""
    reserve(env, record_of(1))
    hasty = ReservationStore(OneBehind(), SHARED_ROOT, tries=1)
    record = record_of(2)
    with pytest.raises(TransientError, match="written by others"):
        env.order().reserve(hasty, NOBODY, record, now())
    assert store().read().of(record.key.digest) is None


class OneBehind(ArtifactsHook):
    """A process that is always too late: somebody else writes between its read and its write."""

    def read_json(self, uri: str) -> Any:
        """Read, and let another run write at once."""
        found = super().read_json(uri)
        assert found is not None
        ArtifactsHook().write_json(uri, found.data)
        return found


@pytest.mark.parametrize("content", ["no JSON", "[]"])
def test_damaged_object_stops_creating_and_nothing_else(env: CloudEnv, content: str) -> None:
    """Nobody gets a permit from a damaged object, while teardown and reaper go on."""
    env.storage.upload(BUCKET, SHARED_ROOT.removeprefix(f"gs://{BUCKET}/") + "/reservations.json", data=content)
    with pytest.raises(GrantUnknown, match="delete it"):
        reserve(env, record_of(1))
    store().release(KEY.digest)
    assert store().readable() == Reservations()


def states(*runs: RunRecord, run_state: str | None = "running") -> dict[str, LeaseState]:
    """What the reaper knows of these runs."""
    return {record.key.digest: LeaseState(record.key.digest, record.lease.expires_at, run_state) for record in runs}


def test_reaper_gives_back_what_was_forgotten(env: CloudEnv) -> None:
    """Reservations of runs that are over, expired or without a lease go; those in progress or in doubt stay."""
    runs = [record_of(number) for number in range(5)]
    for record in runs:
        reserve(env, record)
    going, doubtful, over, unknown, _ = runs
    known = states(going) | states(doubtful, run_state=None) | states(over, run_state="failed")
    known |= states(unknown, run_state="")
    released = release_forgotten(store(), store().read(), known, NOBODY)
    assert released == [record.key.name for record in runs[2:]]
    assert [entry.owner for entry in store().read().entries] == [going.key.digest, doubtful.key.digest]


async def test_reaper_waits_for_the_tpu(env: CloudEnv, client: Any) -> None:
    """What a run has reserved stays taken as long as its TPU exists, whatever became of the run."""
    record = env.lease()
    await env.provisioner(client, env.order(), record).ensure()
    snapshot = await take_snapshot(client)
    assert release_forgotten(store(), store().read(), {}, snapshot) == []
    assert release_forgotten(store(), store().read(), {}, NOBODY) == [KEY.name]


def test_project_number_is_the_buckets(env: CloudEnv) -> None:
    """The number comes from the bucket's metadata, and is unknown where they may not be read."""
    assert env.storage.facts.project_number(BUCKET) == env.cloud.endpoints.project_number == env.grant.project_number
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET}, action="403")
    assert ArtifactsHook().facts.project_number(BUCKET) is None


def test_leases_and_reservations_do_not_meet(env: CloudEnv) -> None:
    """The object of the reservations is no lease."""
    reserve(env, env.lease())
    assert [record.key for record in RunStore(env.storage, ROOT).all()] == [KEY]
