# SPDX-License-Identifier: Apache-2.0
"""A local cloud with everything a hook talks to, and short ways to ask about it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import Context
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2

from airflow_tpu.clients.endpoints import ConnectionOptions
from airflow_tpu.clients.ssh import Login
from airflow_tpu.clients.ssh_login import public_key_line
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint
from airflow_tpu.clients.tpu_messages import Stamp
from airflow_tpu.clients.tpu_retry import CallTiming
from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import DEFAULT_PREFIX, Grant
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import RunKey, labels
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.ends.deletion import delete_seen
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd
from airflow_tpu.lifecycle.order import Order
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.waits.polling import PollPolicy
from airflow_tpu.lifecycle.waits.reachability import Access
from airflow_tpu.lifecycle.waits.target import Target
from airflow_tpu.stores.grant_stores import Stores
from airflow_tpu.stores.grants import SHARED
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.reservations import ReservationStore
from airflow_tpu.stores.runs import RunStore
from localcloud.testing import TIMEOUT, BackgroundCloud, eventually
from tests.airflow_tpu.identities import AIRFLOW

INCLUDE = Path(__file__).resolve().parents[2] / "include"
BUCKET = "trc-local"
ROOT = f"gs://{BUCKET}/{DEFAULT_PREFIX}"
"""Where the grant of the local cloud puts its stores: a test and the tasks it runs see the same ones."""

SHARED_ROOT = f"gs://{BUCKET}/{SHARED}/local-project"
"""Where it puts what all prefixes of the bucket share."""

ZONE = "us-central1-f"
PARENT = f"projects/local-project/locations/{ZONE}"
KEY = RunKey(AIRFLOW, "tpu_train", "manual__2026-01-01T00:00:00+00:00")
QUICK = CallTiming(answer=60.0, retry=120.0, pause=0.02)
"""Try again soon, but never because the machine is slow: a call that is made twice would be counted twice."""
BRIEF = replace(QUICK, retry=0.3)
"""Give up soon an API that does not get better."""
FORM = {
    "script": "hello.py",
    "accelerator_type": "v2-8",
    "zone": ZONE,
    "tier": "spot",
    "artifacts_uri": f"gs://{BUCKET}/runs",
}
"""The least that a person has to ask for."""

STARTED = dt.datetime.now(dt.UTC)
"""When the DAG run of every test began."""


def now() -> dt.datetime:
    """This moment, as an aware instant."""
    return dt.datetime.now(dt.UTC)


def context(key: RunKey = KEY, **more: Any) -> Context:
    """As much of Airflow's context as the tasks look at."""
    instance = SimpleNamespace(
        dag_id=key.dag_id, run_id=key.run_id, map_index=key.map_index, xcom_push=lambda **_: None
    )
    dag_run = SimpleNamespace(
        start_date=STARTED, clear_number=0, logical_date=None, data_interval_start=None, data_interval_end=None
    )
    return cast(Context, {"ti": instance, "dag_run": dag_run, **more})


def poll_policy(seconds: float = TIMEOUT) -> PollPolicy:
    """Look often; give up after so many seconds."""
    return PollPolicy(0.05, now() + dt.timedelta(seconds=seconds))


async def request_delete(client: TPUClient, key: RunKey, token: str | None = None) -> list[IncarnationEnd]:
    """Ask the API to delete every node and queued resource of a run; do not wait.

    :param client: the Cloud TPU API.
    :param key: whose; a colleague's resources, or another run's, are never touched.
    :param token: delete only what carries this attempt's token (None: the whole run has ended).
    :return: how the incarnations found alive ended.
    :raises TPUError: something could not be deleted, or some zone did not answer; the rest was asked for all the same.
    """
    done = await delete_seen(client, await take_snapshot(client), key, token)
    done.check()
    return done.endings


@dataclass(frozen=True)
class CloudEnv:
    """One local cloud and the stores of one grant in its bucket.

    :param cloud: the local cloud.
    :param storage: Cloud Storage through the connection ``google_cloud_default``.
    :param login: the user of the TPU VMs.
    :param grant: what may be used.
    """

    cloud: BackgroundCloud
    storage: ArtifactsHook
    login: Login
    grant: Grant

    @property
    def runs(self) -> RunStore:
        """Where leases are kept."""
        return RunStore(self.storage, ROOT)

    @property
    def ledger(self) -> LedgerStore:
        """Where incarnations are recorded."""
        return LedgerStore(self.storage, ROOT)

    @property
    def reservations(self) -> ReservationStore:
        """What runs have taken from the grant."""
        return ReservationStore(self.storage, SHARED_ROOT)

    @property
    def access(self) -> Access:
        """How to log in to the TPU VMs."""
        return Access(self.login, ConnectionOptions(ssh_port=self.cloud.endpoints.ssh_port))

    def client(self, timing: CallTiming = QUICK) -> TPUClient:
        """The product's client, to be entered."""
        endpoint = APIEndpoint("local-project", AnonymousCredentials(), self.cloud.endpoints.tpu_api_endpoint, True)
        return TPUClient(endpoint, timing)

    @property
    def stores(self) -> Stores:
        """All of them."""
        return Stores.below(self.storage, ROOT, SHARED_ROOT)

    def provisioner(self, client: TPUClient, order: Order, record: RunRecord) -> Provisioner:
        """What ensures a TPU."""
        return Provisioner(client, self.stores, order, record)

    def lease(self, key: RunKey = KEY) -> RunRecord:
        """Take the lease (again)."""
        return self.runs.acquire(key, ZONE, now() + dt.timedelta(hours=1))

    def order(self, queued: bool = False, **changes: Any) -> Order:
        """An order of one spot v2-8, without the startup script, which costs a process for each TPU."""
        fields: dict[str, Any] = {"zone": ZONE, "accelerator_type": "v2-8", "tier": Tier.SPOT, **changes}
        kind = Catalogue.load(INCLUDE / "catalogue").types[fields["accelerator_type"]]
        spec = TPUSpec("local-project", runtime_version=kind.default_runtime, queued=queued, **fields)
        return Order(spec, kind, self.grant, {}, "", public_key_line(self.login), startup=None)

    async def ensure(self, client: TPUClient, queued: bool = False, key: RunKey = KEY) -> Target:
        """Take the lease and ensure its TPU, as the first task of an attempt does."""
        return await self.provisioner(client, self.order(queued), self.lease(key)).ensure()

    async def create(self, client: TPUClient, queued: bool = False, node_id: str = "n-1", **changes: Any) -> str:
        """Ask for one TPU with everything that marks it as ours, past lease and ledger; returns the operation."""
        order, record = self.order(queued, **changes), self.lease()
        permit = order.permit(await take_snapshot(client), record, now())
        stamp = Stamp(node_id, labels(KEY, record.stamp), order.ssh_keys, "6f1f8b2e-6d0b-4b43-9f6f-1f4a3c8f6a11")
        return await client.create(order.spec, stamp, permit)

    def foreign_node(self, node_id: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a node as another user would, without our client."""
        node = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base", "labels": dict(labels or {})}
        request = tpu_v2.CreateNodeRequest(parent=PARENT, node_id=node_id, node=node)
        service = self.cloud.cloud.service
        self.cloud.call(lambda: service.methods["Tpu/CreateNode"](request))
        eventually(lambda: self.nodes()[node_id], lambda found: found == "READY")

    def foreign_multislice(self, slices: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> None:
        """Ask for several on-demand nodes by one request as another user would, without our client."""
        node = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base", "labels": dict(labels or {})}
        queued = {"tpu": {"node_spec": [{"parent": PARENT, "multislice_params": slices, "node": node}]}}
        request = tpu_v2.CreateQueuedResourceRequest(parent=PARENT, queued_resource_id="q", queued_resource=queued)
        service = self.cloud.cloud.service
        self.cloud.call(lambda: service.methods["Tpu/CreateQueuedResource"](request))

    def calls(self, method: str) -> list[Mapping[str, Any]]:
        """Calls of one method of the TPU API, oldest first."""
        audit = self.cloud.call(lambda: self.cloud.cloud.dump(calls=True))["audit"]
        return [call for call in audit if call["method"] == f"Tpu/{method}"]

    def storage_requests(self) -> Counter[str]:
        """Requests of each kind that Cloud Storage has seen."""
        return Counter(self.cloud.call(self.cloud.cloud.storage.stats)["requests"])

    def nodes(self) -> dict[str, str]:
        """State of every node by its id."""
        return {row["name"].rpartition("/")[2]: row["state"] for row in self.cloud.snapshot()["nodes"]}

    def queued(self) -> dict[str, str]:
        """State of every queued resource by its id."""
        return {row["name"].rpartition("/")[2]: row["state"] for row in self.cloud.snapshot()["queued_resources"]}

    def ready_seconds(self) -> float:
        """READY seconds of all nodes as the meter has them."""
        return float(self.cloud.meter()["ready_seconds"])
