# SPDX-License-Identifier: Apache-2.0
"""The deadline alert: it looks into the lease and deletes only what is overdue."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.deadlines import LADDER, SLACK, deadline_alerts, end_overdue
from airflow_tpu.errors import AccessDenied
from airflow_tpu.lifecycle.waits.ready import until_ready
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import BUCKET, KEY, PARENT, ZONE, CloudEnv, now, poll_policy


def context() -> dict[str, object]:
    """What Airflow hands to the callback: the DAG run as its REST API shows it."""
    from airflow.api_fastapi.core_api.datamodels.dag_run import DAGRunResponse

    names = set(DAGRunResponse.model_json_schema(mode="serialization")["properties"])
    assert {"dag_id", "dag_run_id"} <= names
    return {"dag_run": {"dag_id": KEY.dag_id, "dag_run_id": KEY.run_id}}


async def start(env: CloudEnv, client: TPUClient, expires_at: dt.datetime) -> None:
    """A READY TPU of the run, with a lease that ends then."""
    await until_ready(client, await env.ensure(client), poll_policy())
    env.runs.acquire(KEY, ZONE, expires_at)


async def test_overdue_run_loses_its_tpu(env: CloudEnv, client: TPUClient) -> None:
    """A run past its own deadline is ended, whatever state Airflow keeps it in; a colleague's node stays."""
    await start(env, client, now() - dt.timedelta(minutes=1))
    env.foreign_node("tpu-train-of-anna")
    said = await end_overdue("google_cloud_default", context())
    assert "has passed its deadline" in said
    eventually(env.nodes, lambda nodes: nodes == {"tpu-train-of-anna": "READY"})


async def test_run_within_its_deadline_goes_on(env: CloudEnv, client: TPUClient) -> None:
    """An alert of the ladder that comes before the run's own deadline changes nothing."""
    await start(env, client, now() + dt.timedelta(hours=1))
    assert "may run until" in await end_overdue("google_cloud_default", context())
    assert list(env.nodes().values()) == ["READY"]


async def test_run_that_has_ended_has_nothing_to_end(env: CloudEnv) -> None:
    """Without a lease there is nothing to do, and the text says so."""
    assert "holds no lease" in await end_overdue("google_cloud_default", context())


THIRD, FIFTH = replace(KEY, map_index=3, session="sweep"), replace(KEY, session="big")


async def mapped(env: CloudEnv, client: TPUClient) -> None:
    """Two sessions, one of them in a mapped task group: that one is past its deadline, the other one is not."""
    for key in (THIRD, FIFTH):
        await until_ready(client, await env.ensure(client, key=key), poll_policy())
    env.runs.acquire(THIRD, ZONE, now() - dt.timedelta(minutes=1))


async def test_overdue_instance_of_a_mapped_run_loses_its_tpu(env: CloudEnv, client: TPUClient) -> None:
    """The alert of a DAG run finds the lease of each mapped instance, and ends those that are overdue."""
    await mapped(env, client)
    said = await end_overdue("google_cloud_default", context())
    assert f"{THIRD.name} has passed its deadline" in said
    assert f"{FIFTH.name} may run until" in said
    eventually(env.nodes, lambda nodes: nodes == {FIFTH.node_id(1): "READY"})


async def test_damaged_record_of_one_instance_saves_no_other(env: CloudEnv, client: TPUClient) -> None:
    """The instance whose record cannot be read is left alone and named; the overdue one beside it is ended."""
    await mapped(env, client)
    env.storage.upload(BUCKET, env.runs.uri(FIFTH).removeprefix(f"gs://{BUCKET}/"), data="oops")
    said = await end_overdue("google_cloud_default", context())
    assert f"{FIFTH.name} is left alone" in said
    eventually(env.nodes, lambda nodes: nodes == {FIFTH.node_id(1): "READY"})


async def test_failed_delete_of_one_instance_stops_no_other(env: CloudEnv, client: TPUClient) -> None:
    """Of two overdue instances one cannot be deleted: the other one goes, and the failure is raised."""
    await mapped(env, client)
    env.runs.acquire(FIFTH, ZONE, now() - dt.timedelta(minutes=1))
    match = {"method": "DeleteNode", "name": f"*{THIRD.node_id(1)}"}
    env.cloud.add_fault("tpu.call", match, action="error", code=7, message="not yours")
    with pytest.raises(AccessDenied, match="not yours"):
        await end_overdue("google_cloud_default", context())
    eventually(env.nodes, lambda nodes: nodes == {THIRD.node_id(1): "READY"})


async def test_labels_decide_for_mapped_instances_too(env: CloudEnv, client: TPUClient) -> None:
    """While the bucket refuses, an instance whose label has expired is ended, and no other."""
    await mapped(env, client)
    view = await client.node(ResourceName.parse(f"{PARENT}/nodes/{THIRD.node_id(1)}"))
    await client.relabel(view.name, {**view.labels, "airflow-tpu-expires": "1"})
    env.cloud.add_fault("gcs.request", {"bucket": BUCKET}, times=1000, action="403")
    assert f"{THIRD.name} has passed the expiry on its label" in await end_overdue("google_cloud_default", context())
    eventually(env.nodes, lambda nodes: nodes == {FIFTH.node_id(1): "READY"})


async def test_airflow_without_an_identity_ends_nothing(
    env: CloudEnv, client: TPUClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose TPUs are overdue is unknown then: the text says so, and every TPU stays."""
    await start(env, client, now() - dt.timedelta(minutes=1))
    monkeypatch.delenv("AIRFLOW_VAR_AIRFLOW_TPU_IDENTITY")
    assert "Variable airflow_tpu_identity" in await end_overdue("google_cloud_default", context())
    assert list(env.nodes().values()) == ["READY"]


def test_ladder_reaches_the_longest_deadline() -> None:
    """Every number of hours that the form takes is followed by an alert."""
    assert max(LADDER) >= dt.timedelta(days=30)
    assert len(deadline_alerts()) == len(LADDER)


def test_each_alert_says_what_it_is() -> None:
    """Airflow's UI lists them all as deadlines of the DAG: their names tell them from the one that a person chose."""
    names = [alert.name for alert in deadline_alerts()]
    assert names[1] == "After 6 h: delete the TPU if deadline_hours have passed"
    assert len(set(names)) == len(LADDER)


@pytest.mark.parametrize("alert", deadline_alerts(), ids=lambda alert: str(alert.interval))
def test_callback_can_be_imported_by_its_path(alert: object) -> None:
    """The triggerer imports the callback by its dotted path; a typo there would be noticed at the deadline only."""
    from airflow.sdk.module_loading import import_string  # type: ignore[attr-defined]  # exported without __all__

    assert import_string(alert.callback.path) is end_overdue  # type: ignore[attr-defined]


def test_a_run_with_alerts_can_be_cleared() -> None:
    """Airflow stores each interval as the plain number that its Clear counts with, and reads the same time back."""
    from airflow.serialization.decoders import decode_deadline_alert
    from airflow.serialization.encoders import encode_deadline_alert

    stored = [encode_deadline_alert(alert) for alert in deadline_alerts()]
    assert [dt.timedelta(seconds=entry["interval"]) for entry in stored] == [step + SLACK for step in LADDER]
    assert [decode_deadline_alert(entry).interval for entry in stored] == [step + SLACK for step in LADDER]
