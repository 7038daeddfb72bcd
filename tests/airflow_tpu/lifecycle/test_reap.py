# SPDX-License-Identifier: Apache-2.0
"""The reaper, against a project with our TPUs, a colleague's, and trouble."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.ledger.usage import fold
from airflow_tpu.core.run.expiry import LeaseState
from airflow_tpu.core.tpu.labels import LABEL_IDENTITY, LeaseStamp, RunKey, labels
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.ends.expired import delete_expired
from airflow_tpu.lifecycle.ends.forgotten import close_forgotten
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.reap import lease_states, reap
from airflow_tpu.lifecycle.run_context import GrantContext
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.stores.grants import load_catalogue
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.runs import RunStore
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import BUCKET, KEY, ROOT, ZONE, CloudEnv, now, poll_policy, request_delete
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW, OWN

RUNNING = RunKey(AIRFLOW, "tpu_train", "manual__running")


async def start(env: CloudEnv, client: TPUClient, key: RunKey, queued: bool = False) -> None:
    """A READY TPU of a run with a lease of one hour."""
    target = await env.provisioner(client, env.order(queued), env.lease(key)).ensure()
    await until_ready(client, target, poll_policy())


async def test_forgotten_tpus_go_and_everybody_elses_stay(env: CloudEnv, client: TPUClient) -> None:
    """The TPU of a run that is over goes, queued or not; a running run's and a colleague's stay and are reported."""
    await start(env, client, KEY, queued=True)
    await start(env, client, RUNNING)
    env.foreign_node("tpu-train-of-anna", {"airflow-run": KEY.digest})
    states = lease_states(env.runs, lambda _dag, run: "failed" if run == KEY.run_id else "running", AIRFLOW)
    done = await delete_expired(client, await take_snapshot(client), states, OWN)
    assert {sentence.run for sentence in done.deleted} == {KEY.digest}
    assert [line.split(" ")[0].rpartition("/")[2] for line in done.foreign] == ["tpu-train-of-anna"]
    eventually(lambda: set(env.nodes()), lambda nodes: nodes == {f"{RUNNING.name}-1", "tpu-train-of-anna"})
    eventually(env.queued, lambda queued: not queued)


async def test_one_failed_delete_does_not_stop_the_others(env: CloudEnv, client: TPUClient) -> None:
    """The API refuses one of two deletes: the other TPU goes, and the failure is named."""
    await start(env, client, KEY)
    await start(env, client, RUNNING)
    error: dict[str, Any] = {"code": 7, "message": "Permission 'tpu.nodes.delete' denied"}
    env.cloud.add_fault("tpu.call", {"method": "DeleteNode", "name": f"*{KEY.name}-1"}, action="error", **error)
    done = await delete_expired(client, await take_snapshot(client), {}, OWN)
    assert [name.rpartition("/")[2] for name in done.failed] == [f"{KEY.name}-1"]
    eventually(lambda: set(env.nodes()), lambda nodes: nodes == {f"{KEY.name}-1"})


async def test_silent_zone_is_reported_not_taken_for_clean(env: CloudEnv, client: TPUClient) -> None:
    """A zone that does not answer is unknown, which is not the same as empty."""
    env.cloud.add_fault("tpu.zone", {"zone": "us-central1-f"}, times=2)
    done = await delete_expired(client, await take_snapshot(client), {}, OWN)
    assert any("us-central1-f" in zone for zone in done.unreachable)


async def test_open_ledger_record_without_a_tpu_is_closed(env: CloudEnv, client: TPUClient) -> None:
    """A person deleted the TPU in the console: the reaper ends its record, once, and leaves the living one's open."""
    await start(env, client, KEY)
    await start(env, client, RUNNING)
    view = (await take_snapshot(client)).ours(KEY)[0]
    held, ready_at = env.runs.read(KEY), now()
    env.runs.update(held, lambda record: record.with_life(view.node_id, ready_at=ready_at))
    await client.delete_node(view.name)
    eventually(lambda: set(env.nodes()), lambda nodes: nodes == {f"{RUNNING.name}-1"})
    snapshot, states = await take_snapshot(client), lease_states(env.runs, lambda *_: "running", AIRFLOW)
    opened = env.ledger.open_records()
    for names in ([f"{KEY.name}-1"], []):
        assert close_forgotten(env.stores, states, snapshot, opened) == names
        opened = env.ledger.open_records()
    closed = [event for event in env.ledger.events() if isinstance(event, Closed)]
    assert [event.end_reason for event in closed] == [EndReason.VANISHED]
    assert [event.node_id for event in env.ledger.open_records()] == [f"{RUNNING.name}-1"]
    assert all(isinstance(event, Opened) for event in env.ledger.open_records())


@pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])
async def test_ready_unseen_and_deleted_by_hand_counts_in_full(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """Of a TPU that no process saw READY and that is gone nothing is known: it counts from request to notice, ``~``."""
    await start(env, client, KEY, queued)
    node = node_name("local-project", ZONE, f"{KEY.name}-1")
    await (client.delete_queued_resource(node.queued) if queued else client.delete_node(node))
    eventually(lambda: {**env.nodes(), **env.queued()}, lambda left: not left)
    opened = env.ledger.open_records()
    over = lease_states(env.runs, lambda *_: "failed", AIRFLOW)
    assert close_forgotten(env.stores, over, await take_snapshot(client), opened) == [node.id]
    (event,) = [event for event in env.ledger.events() if isinstance(event, Closed)]
    assert (event.end_reason, event.time_source) == (EndReason.VANISHED, TimeSource.OBSERVED)
    (row,) = fold(env.ledger.events(), load_catalogue(), now()).rows
    assert row.estimated
    assert float(row.hours) * 3600 >= env.ready_seconds() > 0


async def test_record_of_a_tpu_that_is_only_coming_stays_open(env: CloudEnv, client: TPUClient) -> None:
    """A TPU created after the reaper's look at the project keeps its record; once its run is over, it is closed."""
    snapshot = await take_snapshot(client)
    await start(env, client, KEY)
    running = lease_states(env.runs, lambda *_: "running", AIRFLOW)
    opened = env.ledger.open_records()
    assert close_forgotten(env.stores, running, snapshot, opened) == []
    over = lease_states(env.runs, lambda *_: "failed", AIRFLOW)
    assert close_forgotten(env.stores, over, snapshot, opened) == [f"{KEY.name}-1"]


def test_lease_states_name_every_run(env: CloudEnv) -> None:
    """Each lease of the bucket is asked about by the ids of its DAG run."""
    env.lease(KEY)
    env.lease(RUNNING)
    asked = []

    def state(dag_id: str, run_id: str) -> str:
        asked.append((dag_id, run_id))
        return "running"

    states = lease_states(env.runs, state, AIRFLOW)
    assert sorted(asked) == [("tpu_train", KEY.run_id), ("tpu_train", RUNNING.run_id)]
    assert isinstance(states[KEY.digest], LeaseState)
    assert states[KEY.digest].expires_at > now() + dt.timedelta(minutes=50)


@pytest.mark.parametrize("root", [ROOT, f"gs://{BUCKET}/bert", "gs://berts-bucket/airflow-tpu"])
async def test_tpu_of_another_airflow_is_reported_by_name_and_never_touched(
    env: CloudEnv, client: TPUClient, root: str
) -> None:
    """With one bucket and prefix, two prefixes or two buckets: a run of these ids that failed here ends only ours."""
    theirs = RunKey(OTHER_AIRFLOW, KEY.dag_id, KEY.run_id)
    if BUCKET not in root:
        env.storage.get_conn().create_bucket("berts-bucket")
    stores = replace(env.stores, runs=RunStore(env.storage, root), ledger=LedgerStore(env.storage, root))
    record = stores.runs.acquire(theirs, ZONE, now() + dt.timedelta(hours=1))
    await until_ready(client, await Provisioner(client, stores, env.order(), record).ensure(), poll_policy())
    await start(env, client, KEY)
    env.stores.airflows.introduce(OTHER_AIRFLOW, "bert", "http://localhost:8080")
    done = await asyncio.to_thread(reap, GrantContext(Connections(), env.grant), lambda *_: "failed", AIRFLOW)
    assert [deletion.name.id for deletion in done.deleted] == [KEY.node_id(1)]
    assert [line.partition("/nodes/")[2] for line in done.foreign] == [
        f"{theirs.node_id(1)} (v2-8 spot, READY), of Airflow 'bert' at http://localhost:8080 ({OTHER_AIRFLOW})"
    ]
    eventually(env.nodes, lambda nodes: nodes == {theirs.node_id(1): "READY"})
    assert stores.runs.read(theirs).lease == record.lease
    assert [event.node_id for event in stores.ledger.open_records(theirs)] == [theirs.node_id(1)]


@pytest.mark.parametrize("prefix", ["airflow-tpu", "bert"])
async def test_reservation_and_record_of_another_airflow_are_left_to_its_own_reaper(
    env: CloudEnv, client: TPUClient, prefix: str
) -> None:
    """Its run has reserved, or lost its TPU a moment ago: as long as its lease holds, only its own reaper tidies up."""
    theirs, bert = RunKey(OTHER_AIRFLOW, KEY.dag_id, KEY.run_id), replace(env.grant, prefix=prefix)
    stores, order = GrantContext(Connections(), bert).stores, env.order()
    record = stores.runs.acquire(theirs, ZONE, now() + dt.timedelta(hours=1))
    target = await Provisioner(client, stores, order, record).ensure()
    view = (await until_ready(client, target, poll_policy())).view
    stores.runs.update(stores.runs.read(theirs), lambda found: found.with_life(view.node_id, ready_at=now()))
    await client.delete_node(view.name)
    eventually(env.nodes, lambda nodes: not nodes)
    ours = await asyncio.to_thread(reap, GrantContext(Connections(), env.grant), lambda *_: "failed", AIRFLOW)
    assert (ours.closed, ours.released) == ([], [])
    assert [entry.airflow for entry in env.reservations.read().entries] == [OTHER_AIRFLOW]
    done = await asyncio.to_thread(reap, GrantContext(Connections(), bert), lambda *_: "failed", OTHER_AIRFLOW)
    assert (done.closed, done.released) == ([theirs.node_id(1)], [theirs.name])


async def test_tpu_of_unknown_origin_is_not_ours(env: CloudEnv, client: TPUClient) -> None:
    """A TPU of this package without an identity, or with another one, stays, although it carries a run of ours."""
    stamp = LeaseStamp("token", now() - dt.timedelta(hours=1), 1)
    unknown = {name: value for name, value in labels(KEY, stamp).items() if name != LABEL_IDENTITY}
    env.foreign_node("without", unknown)
    env.foreign_node("another", {**unknown, LABEL_IDENTITY: OTHER_AIRFLOW})
    done = await delete_expired(client, await take_snapshot(client), {}, OWN)
    assert done.deleted == []
    assert sorted(line.partition("READY), ")[2] for line in done.foreign) == [
        "made by this package for an unknown Airflow",
        f"of an Airflow that this bucket does not know ({OTHER_AIRFLOW})",
    ]
    assert await request_delete(client, KEY) == []
    assert sorted(env.nodes()) == ["another", "without"]


async def test_own_tpu_whose_lease_is_elsewhere_is_reported_and_goes_by_its_label(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The grant file names another prefix since: the lease of the living run is not here, and the TPU stays."""
    await start(env, client, KEY)
    moved = GrantContext(Connections(), replace(env.grant, prefix="moved"))
    done = await asyncio.to_thread(reap, moved, lambda *_: "running", AIRFLOW)
    assert (done.deleted, done.foreign) == ([], [])
    assert [name.rpartition("/")[2] for name in done.to_json()["elsewhere"]] == [KEY.node_id(1)]
    assert "its lease is in another bucket or prefix" in caplog.text
    assert env.nodes() == {KEY.node_id(1): "READY"}
