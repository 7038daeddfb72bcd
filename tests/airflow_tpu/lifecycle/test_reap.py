"""The reaper, against a project with our TPUs, a colleague's, and trouble."""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened
from airflow_tpu.core.run.expiry import LeaseState
from airflow_tpu.core.run.run_record import Holder
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.lifecycle.ends.expired import delete_expired
from airflow_tpu.lifecycle.ends.forgotten import close_forgotten
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.reap import lease_states
from airflow_tpu.lifecycle.waits.ready import until_ready
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import KEY, ZONE, CloudEnv, now, poll_policy

RUNNING = RunKey("tpu_train", "manual__running")


async def start(env: CloudEnv, client: TPUClient, key: RunKey, queued: bool = False) -> None:
    """A READY TPU of a run with a lease of one hour."""
    target = await env.provisioner(client, env.order(queued), env.lease(key)).ensure()
    await until_ready(client, target, poll_policy())


async def test_forgotten_tpus_go_and_everybody_elses_stay(env: CloudEnv, client: TPUClient) -> None:
    """The TPU of a run that is over goes, queued or not; a running run's and a colleague's stay and are reported."""
    await start(env, client, KEY, queued=True)
    await start(env, client, RUNNING)
    env.foreign_node("tpu-train-of-anna", {"airflow-run": KEY.digest})
    states = lease_states(env.runs, lambda _dag, run: "failed" if run == KEY.run_id else "running")
    done = await delete_expired(client, await take_snapshot(client), states)
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
    done = await delete_expired(client, await take_snapshot(client), {})
    assert [name.rpartition("/")[2] for name in done.failed] == [f"{KEY.name}-1"]
    eventually(lambda: set(env.nodes()), lambda nodes: nodes == {f"{KEY.name}-1"})


async def test_silent_zone_is_reported_not_taken_for_clean(env: CloudEnv, client: TPUClient) -> None:
    """A zone that does not answer is unknown, which is not the same as empty."""
    env.cloud.add_fault("tpu.zone", {"zone": "us-central1-f"}, times=2)
    done = await delete_expired(client, await take_snapshot(client), {})
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
    snapshot, states = await take_snapshot(client), lease_states(env.runs, lambda *_: "running")
    opened = env.ledger.open_records()
    for names in ([f"{KEY.name}-1"], []):
        assert close_forgotten(env.stores, states, snapshot, opened) == names
        opened = env.ledger.open_records()
    closed = [event for event in env.ledger.events() if isinstance(event, Closed)]
    assert [event.end_reason for event in closed] == [EndReason.VANISHED]
    assert [event.node_id for event in env.ledger.open_records()] == [f"{RUNNING.name}-1"]
    assert all(isinstance(event, Opened) for event in env.ledger.open_records())


async def test_record_of_a_tpu_that_is_only_coming_stays_open(env: CloudEnv, client: TPUClient) -> None:
    """A TPU created after the reaper's look at the project keeps its record; once its run is over, it is closed."""
    snapshot = await take_snapshot(client)
    await start(env, client, KEY)
    running = lease_states(env.runs, lambda *_: "running")
    opened = env.ledger.open_records()
    assert close_forgotten(env.stores, running, snapshot, opened) == []
    over = lease_states(env.runs, lambda *_: "failed")
    assert close_forgotten(env.stores, over, snapshot, opened) == [f"{KEY.name}-1"]


def test_lease_states_name_every_run(env: CloudEnv) -> None:
    """Each lease of the bucket is asked about by the ids of its DAG run."""
    env.lease(KEY)
    env.lease(RUNNING)
    asked = []

    def state(dag_id: str, run_id: str) -> str:
        asked.append((dag_id, run_id))
        return "running"

    states = lease_states(env.runs, state)
    assert sorted(asked) == [("tpu_train", KEY.run_id), ("tpu_train", RUNNING.run_id)]
    assert isinstance(states[KEY.digest], LeaseState)
    assert states[KEY.digest].expires_at > now() + dt.timedelta(minutes=50)


async def test_another_airflows_run_is_not_judged(env: CloudEnv, client: TPUClient) -> None:
    """Of two Airflows that share a bucket, none ends the other's TPU because its own run of these ids has failed."""
    holder = Holder(now(), 0, "http://composer")
    record = env.runs.acquire(KEY, ZONE, now() + dt.timedelta(hours=1), holder)
    await env.provisioner(client, env.order(), record).ensure()
    snapshot = await take_snapshot(client)
    for ours, deleted in (("http://laptop", 0), ("http://composer", 1)):
        done = await delete_expired(client, snapshot, lease_states(env.runs, lambda *_: "failed", ours))
        assert len(done.deleted) == deleted
