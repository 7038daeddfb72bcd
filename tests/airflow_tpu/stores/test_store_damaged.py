# SPDX-License-Identifier: Apache-2.0
"""One object that cannot be read is unknown for its run: it is named and stays, and all other runs continue."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import Closed
from airflow_tpu.deadlines import end_overdue
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.reap import reap
from airflow_tpu.lifecycle.run_context import GrantContext
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.operators.tpu import CloudTPUDeleteOperator
from airflow_tpu.ui.data import Loader
from airflow_tpu.ui.living_tpus import orphans
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import BUCKET, FORM, KEY, ROOT, CloudEnv, context, poll_policy
from tests.airflow_tpu.identities import AIRFLOW

OTHER = replace(KEY, run_id="manual__over")


def not_json(_: dict[str, Any]) -> bytes:
    """Text."""
    return b"oops"


def half(found: dict[str, Any]) -> bytes:
    """The beginning of the object."""
    text = json.dumps(found).encode()
    return text[: len(text) // 2]


def no_object(_: dict[str, Any]) -> bytes:
    """Another kind of JSON."""
    return b"[1, 2]"


def nested(_: dict[str, Any]) -> bytes:
    """More lists in lists than a parser follows."""
    return b"[" * 200_000


def binary(_: dict[str, Any]) -> bytes:
    """No text."""
    return b"\x93NUMPY\x01\xff"


def further_field(found: dict[str, Any]) -> bytes:
    """A field of a newer release that has not raised its version."""
    return json.dumps({**found, "a_field_of_the_next_release": 1}).encode()


def missing_field(found: dict[str, Any]) -> bytes:
    """All but the last field."""
    return json.dumps(dict(list(found.items())[:-1])).encode()


def wrong_field(found: dict[str, Any]) -> bytes:
    """Every field of a type that it never has."""
    return json.dumps({name: value if name in ("version", "event") else {} for name, value in found.items()}).encode()


DAMAGES = [not_json, half, no_object, nested, binary, further_field, missing_field, wrong_field]
each_damage = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


def spoil(env: CloudEnv, uri: str, damage: Any) -> bytes:
    """Damage an object; returns its content now."""
    found = env.storage.read_json(uri)
    content = cast(bytes, damage({} if found is None else found.data))
    put(env, uri, content)
    return content


def put(env: CloudEnv, uri: str, content: bytes) -> None:
    """Write an object."""
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    env.storage.upload(bucket, name, data=content, mime_type="application/json")


def content_of(env: CloudEnv, uri: str) -> bytes:
    """Read an object."""
    return env.storage.read_end(uri, 1_000_000) or b""


def round_of(env: CloudEnv) -> dict[str, Any]:
    """One round of the reaper, for which every DAG run has failed."""
    return reap(GrantContext(Connections()), lambda *_: "failed", AIRFLOW).to_json()


async def two_runs(env: CloudEnv, client: TPUClient) -> None:
    """Two runs with a READY TPU each."""
    for key in (KEY, OTHER):
        await until_ready(client, await env.ensure(client, key=key), poll_policy())


def path(uri: str) -> str:
    """Name of an object in its bucket."""
    return uri.removeprefix(f"gs://{BUCKET}/")


@each_damage
async def test_reaper_leaves_one_run_alone_and_ends_the_other(env: CloudEnv, client: TPUClient, damage: Any) -> None:
    """The run whose record cannot be read keeps everything; the round names the record, and tidies the other run."""
    await two_runs(env, client)
    before = spoil(env, env.runs.uri(KEY), damage)
    done = await asyncio.to_thread(round_of, env)
    assert [name.rpartition("/")[2] for name in done["deleted"]] == [OTHER.node_id(1)]
    assert (done["closed"], done["released"]) == ([OTHER.node_id(1)], [OTHER.name])
    assert done["unknown"] == [path(env.runs.uri(KEY))]
    assert env.nodes() == {KEY.node_id(1): "READY"}
    assert env.runs.find(OTHER) is None
    assert content_of(env, env.runs.uri(KEY)) == before
    assert [entry.owner for entry in env.reservations.read().entries] == [KEY.digest]
    assert [opened.node_id for opened in env.ledger.open_records()] == [KEY.node_id(1)]


@each_damage
async def test_reaper_closes_the_records_that_it_can_read(env: CloudEnv, client: TPUClient, damage: Any) -> None:
    """An event that cannot be read stays and is named; TPUs go, and the records of other runs are closed."""
    await two_runs(env, client)
    uri = f"{ROOT}/ledger/incarnations/{KEY.node_id(1)}/opened.json"
    before = spoil(env, uri, damage)
    done = await asyncio.to_thread(round_of, env)
    assert done["unknown"] == [path(uri)]
    assert done["closed"] == [OTHER.node_id(1)]
    assert eventually(env.nodes, lambda nodes: nodes == {}) == {}
    assert content_of(env, uri) == before
    assert {event.node_id for event in env.ledger.events()} == {OTHER.node_id(1)}


async def test_copy_of_a_record_says_nothing_of_its_run(env: CloudEnv, client: TPUClient) -> None:
    """A person's copy of a record, whose lease has ended since, ends no TPU; neither does a stray file."""
    await until_ready(client, await env.ensure(client), poll_policy())
    record = content_of(env, env.runs.uri(KEY))
    old = json.dumps({**json.loads(record), "lease": {**json.loads(record)["lease"], "expires_at": _LONG_AGO}})
    strays = {f"{ROOT}/leases/{name}": data for name, data in (("zz-backup.json", old.encode()), ("notes.txt", b"x"))}
    for uri, data in strays.items():
        put(env, uri, data)
    done = await asyncio.to_thread(lambda: reap(GrantContext(Connections()), lambda *_: "running", AIRFLOW).to_json())
    assert done["deleted"] == []
    assert sorted(done["unknown"]) == sorted(map(path, strays))
    assert env.nodes() == {KEY.node_id(1): "READY"}


_LONG_AGO = "2026-01-01T00:00:00+00:00"


@each_damage
async def test_deadline_alert_leaves_the_run_alone(env: CloudEnv, client: TPUClient, damage: Any) -> None:
    """Nobody knows until when the run may continue: its TPU stays, and the text names the record."""
    await until_ready(client, await env.ensure(client), poll_policy())
    spoil(env, env.runs.uri(KEY), damage)
    said = await end_overdue("google_cloud_default", {"dag_run": {"dag_id": KEY.dag_id, "dag_run_id": KEY.run_id}})
    assert f"{KEY.name} is left alone" in said
    assert env.nodes() == {KEY.node_id(1): "READY"}


@each_damage
async def test_page_shows_the_others_and_names_what_it_leaves_out(
    env: CloudEnv, client: TPUClient, damage: Any
) -> None:
    """The TPU of the run is no orphan, its usage is left out, and the other run is shown in full."""
    await two_runs(env, client)
    spoil(env, env.runs.uri(KEY), damage)
    spoil(env, f"{ROOT}/ledger/incarnations/{KEY.node_id(1)}/opened.json", damage)
    loader = Loader()
    found = await asyncio.to_thread(loader)
    assert orphans(found) == []
    assert [record.key for record in found.records or ()] == [OTHER]
    assert found.usage is not None
    assert [row.opened.node_id for row in found.usage.rows] == [OTHER.node_id(1)]
    assert KEY.name in found.problems["leases"]
    assert KEY.name in found.problems["ledger"]


async def test_page_reads_a_repaired_event_again(env: CloudEnv, client: TPUClient) -> None:
    """An event that a person has repaired is counted at the next look."""
    await until_ready(client, await env.ensure(client), poll_policy())
    uri = f"{ROOT}/ledger/incarnations/{KEY.node_id(1)}/opened.json"
    whole = content_of(env, uri)
    spoil(env, uri, half)
    loader = Loader()
    assert "ledger" in (await asyncio.to_thread(loader)).problems
    put(env, uri, whole)
    found = await asyncio.to_thread(loader)
    assert "ledger" not in found.problems
    assert found.usage is not None
    assert [row.opened.node_id for row in found.usage.rows] == [KEY.node_id(1)]


async def test_teardown_of_another_run_ends_in_order(env: CloudEnv, client: TPUClient) -> None:
    """A run ends and its books are closed, whatever lies in the bucket of a neighbour."""
    await two_runs(env, client)
    spoil(env, env.runs.uri(KEY), half)
    spoil(env, f"{ROOT}/ledger/incarnations/{KEY.node_id(1)}/opened.json", not_json)
    operator = CloudTPUDeleteOperator(task_id="delete", conf=FORM, poll_interval=0.1, deferrable=False)
    await asyncio.to_thread(operator.execute, context(OTHER))
    assert list(env.nodes()) == [KEY.node_id(1)]
    assert [event.node_id for event in env.ledger.events(OTHER) if isinstance(event, Closed)] == [OTHER.node_id(1)]
    assert env.runs.find(OTHER) is None
