"""What a DAG run has left in the cloud: objects, ledger, meter."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from google.cloud import storage

from localcloud.testing import BackgroundCloud, storage_bucket

BUCKET = "trc-local"
Event = dict[str, Any]


def bucket(cloud: BackgroundCloud) -> storage.Bucket:
    """The grant's bucket, by Google's own client."""
    return storage_bucket(cloud.endpoints.storage_api_endpoint, BUCKET)


def objects(cloud: BackgroundCloud) -> dict[str, bytes]:
    """Every object of the grant's bucket, by name."""
    return {blob.name: blob.download_as_bytes() for blob in bucket(cloud).list_blobs()}


def object_names(cloud: BackgroundCloud) -> list[str]:
    """Names of the objects of the grant's bucket, without reading them."""
    return [blob.name for blob in bucket(cloud).list_blobs()]


def upload(cloud: BackgroundCloud, name: str, text: str) -> str:
    """Put a script into the bucket; returns its URI."""
    bucket(cloud).blob(name).upload_from_string(text)
    return f"gs://{BUCKET}/{name}"


def events(cloud: BackgroundCloud, kind: str) -> list[Event]:
    """Events of the ledger, ``opened`` or ``closed``, by incarnation."""
    return [json.loads(body) for name, body in sorted(objects(cloud).items()) if name.endswith(f"/{kind}.json")]


def ledger_seconds(cloud: BackgroundCloud) -> float:
    """READY seconds of all incarnations as the ledger has them."""
    spans = [(event["ready_at"], event["ended_at"]) for event in events(cloud, "closed") if event["ready_at"]]
    instants = [(dt.datetime.fromisoformat(start), dt.datetime.fromisoformat(end)) for start, end in spans]
    return sum((end - start).total_seconds() for start, end in instants)


def metered_seconds(cloud: BackgroundCloud) -> float:
    """READY seconds of all nodes as the local cloud's meter has them."""
    return float(cloud.meter()["ready_seconds"])


def api_calls(cloud: BackgroundCloud) -> dict[str, int]:
    """How often each method of the TPU API was called."""
    return {name: count for name, count in cloud.meter()["calls"].items() if count}


def names_left(cloud: BackgroundCloud) -> list[str]:
    """Short names of the nodes and queued resources that are there."""
    rows = cloud.snapshot()
    return sorted(row["name"].rpartition("/")[2] for kind in rows.values() for row in kind)


def usage_events(run_id: str) -> list[dict[str, Any]]:
    """Extras of the events of the asset ``tpu-usage`` that a DAG run has emitted."""
    return asset_events("tpu-usage", run_id)


def asset_events(name: str, run_id: str) -> list[dict[str, Any]]:
    """Extras of the events of an asset that a DAG run has emitted."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
    with create_session() as session:
        return list(session.scalars(query.where(AssetModel.name == name, AssetEvent.source_run_id == run_id)))


def type_airflow(*words: str) -> None:
    """Type a command of Airflow's."""
    from airflow.cli import cli_parser

    arguments = cli_parser.get_parser().parse_args(words)
    arguments.func(arguments)


def let_start(dag_id: str) -> None:
    """Let Airflow read every DAG file, as its DAG processor does, and start one DAG when it is due."""
    from airflow.models import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    type_airflow("dags", "reserialize")
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_paused=False))


def waiting_for_a_start(asset: str) -> set[str]:
    """DAGs that the scheduler would start now over an event of an asset."""
    from airflow.models.asset import AssetDagRunQueue, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(AssetDagRunQueue.target_dag_id).join(AssetModel, AssetModel.id == AssetDagRunQueue.asset_id)
    with create_session() as session:
        return set(session.scalars(query.where(AssetModel.name == asset)))
