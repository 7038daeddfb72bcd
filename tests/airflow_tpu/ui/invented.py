# SPDX-License-Identifier: Apache-2.0
"""A project with history: incarnations, leases and TPUs that never were, the same on every run."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from google.cloud import tpu_v2

from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource, event_to_json
from airflow_tpu.core.tpu.labels import LeaseStamp, RunKey, labels
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.runs import RunStore
from localcloud.testing import BackgroundCloud, eventually, tpu_client
from tests.airflow_tpu.identities import AIRFLOW

BUCKET = "trc-local"
ROOT = f"gs://{BUCKET}/airflow-tpu"
PROJECT = "local-project"
DAGS = tuple(["tpu_train", "tpu_nightly_retrain", "tpu_sweep", "protein_folding", "speech_ko", "image_net", "notebook"])
Kind = tuple[str, str, int, Tier, str | None]
"""Type, zone, chips, tier, and the allowance that covers it."""
V2, V5E, V6E, V3 = (
    ("v2-8", "us-central1-f", 4, Tier.ON_DEMAND, "5 on-demand v2-8 devices in us-central1-f"),
    ("v5litepod-8", "europe-west4-b", 8, Tier.SPOT, "64 spot v5e chips in europe-west4-b"),
    ("v6e-8", "us-east1-d", 8, Tier.SPOT, "64 spot v6e chips in us-east1-d"),
    ("v3-8", "europe-west4-a", 4, Tier.SPOT, None),
)
KINDS = (V2, V5E, V5E, V6E, V2, V6E)
LIVING = RunKey(AIRFLOW, "tpu_train", "manual__2026-11-20T10:00:00+00:00")
FORGOTTEN = RunKey(AIRFLOW, "protein_folding", "scheduled__2026-11-19T00:00:00+00:00")
DEAD = RunKey(AIRFLOW, "speech_ko", "manual__2026-11-20T08:30:00+00:00")
HOUR = dt.timedelta(hours=1)


def opened(key: RunKey, number: int, asked: dt.datetime, kind: Kind = V2) -> Opened:
    """The *opened* of one incarnation."""
    accelerator_type, zone, chips, tier, allowance = kind
    return Opened(
        node_id=key.node_id(number),
        run=key.digest,
        dag_id=key.dag_id,
        run_id=key.run_id,
        project=PROJECT,
        zone=zone,
        accelerator_type=accelerator_type,
        chips=chips,
        tier=tier,
        provisioning="node",
        external_ips=1,
        allowance=allowance,
        paid_reason="" if allowance else "camera-ready deadline",
        requested_at=asked,
        airflow=key.airflow,
    )


def history(now: dt.datetime, count: int = 200) -> Iterator[Opened | Closed]:
    """Events of so many ended incarnations over the last six weeks."""
    rng = random.Random(7)
    for number in range(count):
        asked = now - dt.timedelta(hours=rng.uniform(12, 42 * 24))
        dag_id = rng.choices(DAGS, (9, 7, 5, 4, 3, 2, 1))[0]
        key = RunKey(AIRFLOW, dag_id, f"manual__{asked:%Y-%m-%dT%H:%M:%S}+00:00")
        event = opened(key, 1, asked, V3 if number % 50 == 9 else rng.choice(KINDS))
        yield event
        yield _closed(event, rng)


def _closed(event: Opened, rng: random.Random) -> Closed:
    ready = event.requested_at + dt.timedelta(minutes=rng.uniform(1, 30))
    hours = rng.uniform(0.2, 11)
    reasons = (
        [EndReason.FINISHED] * 6 + [EndReason.PREEMPTED] * (3 if event.tier is Tier.SPOT else 0) + [EndReason.FAILED]
    )
    source = TimeSource.OBSERVED if rng.random() < 0.1 else TimeSource.API
    reason = rng.choice(reasons)
    lost = None if rng.random() < 0.05 else rng.uniform(0, 1800) if reason is not EndReason.FINISHED else 0.0
    size = rng.randrange(10**10)
    return Closed(event.node_id, ready, ready + hours * HOUR, reason, source, hours * 3400, size, lost)


def closed_like(event: Opened, hours: float) -> Closed:
    """A plain end after so many hours."""
    begin = event.requested_at
    return Closed(event.node_id, begin, begin + hours * HOUR, EndReason.FINISHED, TimeSource.API, hours * 3600)


@dataclass(frozen=True)
class Project:
    """A local cloud that is written to as the product does.

    :param cloud: the cloud.
    :param storage: Cloud Storage through the connection of the process.
    """

    cloud: BackgroundCloud
    storage: ArtifactsHook

    @property
    def ledger(self) -> LedgerStore:
        """Where incarnations are recorded."""
        return LedgerStore(self.storage, ROOT)

    @property
    def runs(self) -> RunStore:
        """Where leases are kept."""
        return RunStore(self.storage, ROOT)

    def record(self, event: Opened | Closed) -> None:
        """Write one event."""
        self.storage.write_json(f"{ROOT}/{event.path}", event_to_json(event), 0)

    def create(self, node_id: str, kind: Kind = V2, marks: Mapping[str, str] | None = None) -> None:
        """Create a node by hand, with these labels, and wait until it is there."""
        accelerator_type, zone, _, tier, _ = kind
        spot = tpu_v2.SchedulingConfig(spot=tier is Tier.SPOT)
        node = tpu_v2.Node(
            accelerator_type=accelerator_type,
            runtime_version="v2-alpha-tpuv6e" if accelerator_type.startswith("v6e") else "tpu-ubuntu2204-base",
            labels=marks or {},
            scheduling_config=spot,
        )
        parent = f"projects/{PROJECT}/locations/{zone}"
        tpu_client(self.cloud.endpoints).create_node(parent=parent, node_id=node_id, node=node)
        eventually(lambda: self.states().get(node_id), lambda state: state == "READY")

    def run(self, key: RunKey, expires_at: dt.datetime, leased: bool = True) -> None:
        """A run of ours with its TPU."""
        now = dt.datetime.now(dt.UTC)
        token = self.runs.acquire(key, V2[1], expires_at).lease.token if leased else "0123456789abcdef"
        self.record(opened(key, 1, now))
        self.create(key.node_id(1), marks=labels(key, LeaseStamp(token, expires_at, 1)))

    def states(self) -> dict[str, str]:
        """State of every node by its id."""
        return {row["name"].rpartition("/")[2]: row["state"] for row in self.cloud.snapshot()["nodes"]}

    def furnish(self, now: dt.datetime) -> None:
        """Everything the page can show at once: in use, idle, over, dead, billed, foreign, forgotten."""
        for event in history(now):
            self.record(event)
        self.run(LIVING, now + 5 * HOUR)
        self.run(FORGOTTEN, now + HOUR, leased=False)
        self.run(DEAD, now + HOUR)
        self.cloud.preempt(DEAD.node_id(1))
        for number in range(4):
            self.create(f"annas-notebook-{number}")
        self.create("left-by-hand", V3)
        self.create("bens-v6e", V6E)
