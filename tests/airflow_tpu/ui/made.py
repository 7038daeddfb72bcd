# SPDX-License-Identifier: Apache-2.0
"""Snapshots made by hand, for the pure half of the page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.ledger.usage import fold
from airflow_tpu.core.run.run_record import Lease, RunRecord
from airflow_tpu.core.tpu.labels import LeaseStamp, RunKey, labels
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import QueuedView, Tier, TPUView
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
from airflow_tpu.ui.parts import Reader
from airflow_tpu.ui.snapshot import Snapshot
from tests.airflow_tpu.identities import AIRFLOW, OWN
from tests.airflow_tpu.shipped import GENERATIONS

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
ZONE = "us-central1-f"
ROW = "2 spot v2-8 devices in us-central1-f"
KEY = RunKey(AIRFLOW, "tpu_train", "manual__2026-11-20T10:00:00+00:00")
CATALOGUE = Catalogue.load(Path(__file__).parents[3] / "include" / "catalogue")
ALL = Reader({"tpu_train", "secret_dag"}, everything=True)


def grant(**changes: Any) -> Grant:
    """Two v2-8 and eight v5e chips, all spot, with forty days left."""
    rows = [
        {"count": 2, "unit": "devices", "tier": "spot", "type": "v2-8", "zone": ZONE},
        {"count": 8, "unit": "chips", "tier": "spot", "generation": "v5e", "zone": "us-central1-a"},
    ]
    usual = {"project_id": "my-project", "project_number": "123456789012", "bucket": "my-bucket", "allowances": rows}
    return Grant.parse({**usual, "start": "2026-10-01", "timezone": "UTC", "days": 90, **changes}, GENERATIONS)


def node(node_id: str, key: RunKey | None = None, expires_at: dt.datetime = NOW + HOUR, **changes: Any) -> TPUView:
    """A READY spot v2-8; with a key it is ours."""
    fields = {"state": "READY", "accelerator_type": "v2-8", "tier": Tier.SPOT, **changes}
    marks = labels(key, LeaseStamp("token", expires_at, 1)) if key else {}
    name = node_name("my-project", fields.pop("zone", ZONE), node_id)
    return TPUView(name=name, labels=marks, **fields)


def queued(queued_id: str, state: str = "WAITING_FOR_RESOURCES", key: RunKey | None = None) -> QueuedView:
    """A queued resource for one spot v2-8."""
    marks = labels(key, LeaseStamp("token", NOW + HOUR, 1)) if key else {}
    name = node_name("my-project", ZONE, queued_id).queued
    return QueuedView(name, state, 0, "", (queued_id,), marks, "v2-8", Tier.SPOT)


def opened(key: RunKey = KEY, number: int = 1, asked: dt.datetime = NOW - 2 * HOUR, **changes: Any) -> Opened:
    """The *opened* of a spot v2-8 that the grant covers."""
    fields: dict[str, Any] = {
        "project": "my-project",
        "zone": ZONE,
        "accelerator_type": "v2-8",
        "chips": 4,
        "tier": Tier.SPOT,
        "provisioning": "queued-resource",
        "external_ips": 0,
        "allowance": ROW,
        "paid_reason": "",
        "airflow": key.airflow,
        **changes,
    }
    return Opened(
        node_id=key.node_id(number), run=key.digest, dag_id=key.dag_id, run_id=key.run_id, requested_at=asked, **fields
    )


def closed(event: Opened, hours: float = 1.0, reason: EndReason = EndReason.FINISHED, size: int = 0) -> Closed:
    """The end of an incarnation that was READY when it was asked for, and trained all the time."""
    begin = event.requested_at
    return Closed(event.node_id, begin, begin + hours * HOUR, reason, TimeSource.API, hours * 3600, size)


def record(key: RunKey = KEY, expires_at: dt.datetime = NOW + HOUR) -> RunRecord:
    """A lease of a run."""
    return RunRecord(key, Lease("token", expires_at), ZONE, incarnation=1)


def snapshot(
    nodes: Iterable[TPUView] = (),
    events: Iterable[Opened | Closed] = (),
    records: Iterable[RunRecord] | None = (),
    **changes: Any,
) -> Snapshot:
    """Everything could be read, unless changed."""
    fields: dict[str, Any] = {
        "grant": grant(),
        "project": ProjectSnapshot(tuple(nodes), (), ()),
        "records": None if records is None else tuple(records),
        "usage": fold(events, CATALOGUE, NOW),
        "airflows": OWN,
        **changes,
    }
    return Snapshot(NOW, **fields)
