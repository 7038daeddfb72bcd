# SPDX-License-Identifier: Apache-2.0
"""What another release has written is left alone and named, and stops nobody's other run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.grant.reservations import Reservations
from airflow_tpu.core.model.model import Champion, ModelManifest
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.deadlines import end_overdue
from airflow_tpu.errors import TransientError, UnknownVersion
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.ends.expired import delete_expired, note
from airflow_tpu.lifecycle.ends.forgotten import close_forgotten, forget_runs, release_forgotten
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.reap import lease_states
from airflow_tpu.lifecycle.release import abandon
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.stores.models import ModelStore
from airflow_tpu.triggers.base import CloudTPUBaseTrigger
from airflow_tpu.triggers.capacity import CloudTPUCapacityTrigger
from airflow_tpu.triggers.run import CloudTPURunTrigger
from airflow_tpu.triggers.tpu import CloudTPUGoneTrigger, CloudTPUReadyTrigger
from airflow_tpu.ui.data import Loader
from airflow_tpu.ui.living_tpus import orphans
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import BUCKET, KEY, ROOT, ZONE, CloudEnv, poll_policy
from tests.airflow_tpu.identities import AIRFLOW, OWN

OTHER = RunKey(AIRFLOW, "tpu_train", "manual__over")
MODEL = "digits"


def models(env: CloudEnv) -> ModelStore:
    """The versions of one model."""
    return ModelStore(env.storage, ROOT, MODEL)


def raise_version(env: CloudEnv, uri: str) -> bytes:
    """Make an object one of a newer release, which has more in it; returns its content."""
    found = env.storage.read_json(uri)
    field = "schema_version" if found is None or "schema_version" in found.data else "version"
    env.storage.write_json(uri, {**(found.data if found else {}), field: 2, "of_a_newer_release": True})
    return content(env, uri)


def content(env: CloudEnv, uri: str) -> bytes:
    """The object's content."""
    return env.storage.read_end(uri, 100_000) or b""


READS: dict[str, tuple[Callable[[CloudEnv], str], list[Callable[[CloudEnv], object]]]] = {
    "run record": (
        lambda env: env.runs.uri(KEY),
        [
            lambda env: env.runs.read(KEY),
            lambda env: env.lease(),
            lambda env: env.runs.amend(KEY, RunRecord.next_incarnation),
            lambda env: env.runs.forget(KEY, "token"),
        ],
    ),
    "list of reservations": (
        lambda env: env.reservations.uri,
        [
            lambda env: env.reservations.read(),
            lambda env: env.reservations.take(None, lambda now: None),  # type: ignore[arg-type, return-value]
        ],
    ),
    "champion pointer": (
        lambda env: f"{ROOT}/models/{MODEL}/champion.json",
        [
            lambda env: models(env).champion(),
            lambda env: models(env).replace(lambda current: Champion("v1", "", "", "")),
            lambda env: models(env).prune(1),
        ],
    ),
    "manifest of a model version": (
        lambda env: f"{ROOT}/models/{MODEL}/versions/v1.json",
        [
            lambda env: models(env).manifest("v1"),
            lambda env: models(env).register(ModelManifest(MODEL, "v1", "", "", "", {})),
        ],
    ),
}


@pytest.mark.parametrize(
    ("what", "read"),
    [
        pytest.param(what, read, id=f"{what} {number}")
        for what, (_, reads) in READS.items()
        for number, read in enumerate(reads)
    ],
)
def test_one_object_of_another_release_is_an_error_that_names_it(
    env: CloudEnv, what: str, read: Callable[[CloudEnv], object]
) -> None:
    """Reading or changing it fails with its name and version, and it stays as it is."""
    uri = READS[what][0](env)
    if what == "run record":
        env.lease()
    if what == "list of reservations":
        env.storage.write_json(uri, {"version": 1, "entries": []})
    before = raise_version(env, uri)
    with pytest.raises(UnknownVersion, match=f"the {what} {uri} has version 2, and this release reads version 1"):
        read(env)
    assert content(env, uri) == before


async def test_reaper_leaves_a_run_of_another_release_alone_and_goes_on(env: CloudEnv, client: TPUClient) -> None:
    """Its TPU, record, reservation and ledger stay; the other forgotten TPU goes, with everything of it."""
    for key in (KEY, OTHER):
        await until_ready(client, await env.ensure(client, key=key), poll_policy())
    before = raise_version(env, env.runs.uri(KEY))
    reserved = env.reservations.readable()
    states = lease_states(env.runs, lambda *_: "failed", AIRFLOW)
    snapshot, opened = await take_snapshot(client), env.ledger.open_records()
    done = await delete_expired(client, snapshot, states, OWN)
    note(env.stores, done)
    assert [sentence.run for sentence in done.deleted] == [OTHER.digest]
    eventually(lambda: set(env.nodes()), lambda nodes: nodes == {KEY.node_id(1)})
    left = await take_snapshot(client)
    closed = close_forgotten(env.stores, states, left, opened, done.endings)
    released = release_forgotten(env.reservations, reserved, states, left)
    assert (closed, released) == ([OTHER.node_id(1)], [OTHER.name])
    assert forget_runs(env.runs, states, left) == [OTHER.name]
    assert content(env, env.runs.uri(KEY)) == before
    assert [entry.owner for entry in env.reservations.read().entries] == [KEY.digest]


async def test_record_of_a_tpu_that_is_gone_is_not_closed_without_its_run(env: CloudEnv, client: TPUClient) -> None:
    """What another release knows of a TPU's time would be lost if its record were closed without that."""
    await until_ready(client, await env.ensure(client), poll_policy())
    raise_version(env, env.runs.uri(KEY))
    (node,) = (await take_snapshot(client)).ours(KEY)
    await client.delete_node(node.name)
    eventually(env.nodes, lambda nodes: nodes == {})
    states, opened = lease_states(env.runs, lambda *_: "", AIRFLOW), env.ledger.open_records()
    assert close_forgotten(env.stores, states, await take_snapshot(client), opened) == []
    assert [event.node_id for event in env.ledger.open_records()] == [KEY.node_id(1)]


async def test_deadline_alert_leaves_a_run_of_another_release_alone(env: CloudEnv, client: TPUClient) -> None:
    """Its record may hold a later deadline than the label: nothing is deleted, and the text says why."""
    await until_ready(client, await env.ensure(client), poll_policy())
    raise_version(env, env.runs.uri(KEY))
    context = {"dag_run": {"dag_id": KEY.dag_id, "dag_run_id": KEY.run_id}}
    assert "is left alone" in await end_overdue("google_cloud_default", context)
    assert list(env.nodes().values()) == ["READY"]


async def test_killed_task_leaves_a_run_of_another_release_alone(env: CloudEnv, client: TPUClient) -> None:
    """A newer release may have taken the run over: nobody can read whose TPU it is."""
    await until_ready(client, await env.ensure(client), poll_policy())
    token = env.runs.read(KEY).lease.token
    raise_version(env, env.runs.uri(KEY))
    attempt = RunContext(KEY, {}, Connections())
    assert (await asyncio.to_thread(abandon, attempt, token)).endings == []
    assert list(env.nodes().values()) == ["READY"]


@pytest.mark.parametrize("event", ["opened", "closed"])
async def test_incarnation_with_an_event_of_another_release_is_left_out(
    env: CloudEnv, client: TPUClient, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Half an incarnation would count wrongly, so it counts nothing; the log names the object, the others count."""
    keys = [KEY, OTHER]
    for key in keys:
        await until_ready(client, await env.ensure(client, key=key), poll_policy())
    states = lease_states(env.runs, lambda *_: "failed", AIRFLOW)
    snapshot = await gone(env, client)
    assert len(close_forgotten(env.stores, states, snapshot, env.ledger.open_records())) == len(keys)
    uri = f"{ROOT}/ledger/incarnations/{KEY.node_id(1)}/{event}.json"
    raise_version(env, uri)
    assert {found.node_id for found in env.ledger.events()} == {OTHER.node_id(1)}
    assert f"{KEY.node_id(1)}/{event}.json has version 2" in caplog.text


async def gone(env: CloudEnv, client: TPUClient) -> Any:
    """The project without any TPU."""
    for node in (await take_snapshot(client)).nodes:
        await client.delete_node(node.name)
    eventually(env.nodes, lambda nodes: nodes == {})
    return await take_snapshot(client)


async def test_page_shows_no_orphan_and_says_what_is_left_out(env: CloudEnv, client: TPUClient) -> None:
    """The TPU of a run of another release is not called forgotten, and the page names what it does not show."""
    await until_ready(client, await env.ensure(client), poll_policy())
    raise_version(env, env.runs.uri(KEY))
    raise_version(env, f"{ROOT}/ledger/incarnations/{KEY.node_id(1)}/opened.json")
    found = await asyncio.to_thread(Loader())
    assert orphans(found) == []
    assert found.usage is not None
    assert found.usage.rows == ()
    assert KEY.name in found.problems["leases"]
    assert KEY.name in found.problems["ledger"]


def test_giving_back_stops_at_a_list_of_another_release(env: CloudEnv) -> None:
    """Teardown and reaper go on; nothing is given back from a list that they cannot read."""
    env.storage.write_json(env.reservations.uri, {"version": 2})
    env.reservations.release(KEY.digest)
    assert env.reservations.readable() == Reservations()
    assert json.loads(content(env, env.reservations.uri)) == {"version": 2}


def test_prune_leaves_a_manifest_of_another_release(env: CloudEnv) -> None:
    """It stays, and the others are pruned."""
    store = models(env)
    for version in ("v1", "v2", "v3"):
        store.register(ModelManifest(MODEL, version, "", f"gs://{BUCKET}/{version}/attempt-1", "", {}))
    raise_version(env, f"{store.uri}/versions/v1.json")
    assert [manifest.version for manifest in store.prune(1)] == ["v2"]
    assert store.versions() == ["v3", "v1"]


@pytest.mark.parametrize(
    ("trigger", "carried"),
    [
        (CloudTPUCapacityTrigger, {"search": {"what": "capacity", "since": 0, "resume_at": 0}}),
        (CloudTPUReadyTrigger, {"target": {"of_a_newer_release": True}}),
        (CloudTPUGoneTrigger, {"names": ["of a newer release"]}),
        (CloudTPURunTrigger, {"job": {"of_a_newer_release": True}}),
    ],
)
async def test_trigger_of_another_release_ends_with_an_error_that_a_retry_cures(
    trigger: type[CloudTPUBaseTrigger], carried: dict[str, Any]
) -> None:
    """A trigger reads its own arguments after the version; the next try makes one of its own release."""
    made = trigger({"version": 2, "zone": ZONE}, **carried)
    (event,) = [event async for event in made.run()]
    assert event.payload["error"] == TransientError.__name__
    assert "has version 2" in event.payload["details"]["message"]
    arguments = made.serialize()[1]
    assert arguments["watch"] == {"version": 2, "zone": ZONE}
    assert {name: arguments[name] for name in carried} == carried
