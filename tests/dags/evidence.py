# SPDX-License-Identifier: Apache-2.0
"""What a DAG run has left in the cloud: objects, ledger, meter."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from google.cloud import storage

from localcloud.testing import BackgroundCloud, storage_bucket

BUCKET = "trc-local"
SAME = dt.timedelta(seconds=0.5)
"""How far two notes of one instant may be apart: those of the API's clock are made one after the other."""

OK, NOT_FOUND = 0, 5
"""Status codes of an answer that says something."""

LOOKS = 6
"""Looks at the API after the end of a TPU until the ledger has it ended, at most."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Span:
    """A time from one instant to another."""

    start: dt.datetime
    end: dt.datetime


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


def metered_seconds(cloud: BackgroundCloud) -> float:
    """READY seconds of all nodes as the local cloud's meter has them."""
    return float(cloud.meter()["ready_seconds"])


def check_books(cloud: BackgroundCloud) -> None:
    """Every incarnation is closed, from no later than the meter's start to no earlier than its end, and hardly longer.

    Hardly longer is counted in looks at the API, not in seconds: how far apart two looks are says something of the
    machine, how many a loss takes to be noticed says something of the code.

    :raises AssertionError: the ledger and the meter disagree.
    """
    opened = {event["node_id"]: event for event in events(cloud, "opened")}
    closed = {event["node_id"]: event for event in events(cloud, "closed")}
    assert set(closed) == set(opened)
    charged = ready_spans(cloud, opened)
    assert set(charged) <= {name for name, event in closed.items() if event["ready_at"]}
    for name, spans in charged.items():
        check_span(opened[name], closed[name], spans)
        check_noticed(cloud, closed[name], spans)


def check_noticed(cloud: BackgroundCloud, closed: Event, spans: list[Span]) -> None:
    """The end of one incarnation was noticed within a few looks."""
    end = max(span.end for span in spans)
    late = [at for at in looks(cloud) if end < at <= instant(closed["ended_at"])]
    assert len(late) <= LOOKS, (closed, spans, late)


def check_span(opened: Event, closed: Event, spans: list[Span]) -> None:
    """Compare one *closed* event with what the meter has of its node."""
    booked = Span(instant(closed["ready_at"]), instant(closed["ended_at"]))
    start, end = spans[0].start, max(span.end for span in spans)
    assert instant(opened["requested_at"]) <= booked.start <= start + SAME, (closed, spans)
    assert end - SAME <= booked.end, (closed, spans)
    if closed["time_source"] == "api":
        assert abs(booked.start - start) <= SAME, (closed, spans)
        assert abs(booked.end - end) <= SAME, (closed, spans)


def ready_spans(cloud: BackgroundCloud, names: Collection[str]) -> dict[str, list[Span]]:
    """From when to when each of some nodes was READY as the meter has it; nothing of one that never was.

    :param names: ids of nodes that are gone.
    """
    rows = [(row["name"].rpartition("/")[2], row["ready"]) for row in cloud.meter()["nodes"] if row["ready"]]
    return {
        name: [Span(instant(span["start"]), instant(span["end"])) for span in spans]
        for name, spans in rows
        if name in names
    }


def looks(cloud: BackgroundCloud) -> list[dt.datetime]:
    """When the API said what there is."""
    calls = cloud.call(lambda: cloud.cloud.dump(calls=True))["audit"]
    answered = [call for call in calls if call["code"] in (OK, NOT_FOUND)]
    return [instant(call["at"]) for call in answered if call["method"].startswith(("Tpu/Get", "Tpu/List"))]


def instant(text: str) -> dt.datetime:
    """An instant of the ledger or of the meter."""
    return dt.datetime.fromisoformat(text)


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
