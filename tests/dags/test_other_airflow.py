# SPDX-License-Identifier: Apache-2.0
"""Two Airflows that share a bucket may give a DAG run the same ids: the second one touches nothing of the first."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tpu_v2

from airflow_tpu.core.run.run_record import Holder, RunRecord
from airflow_tpu.core.tpu.labels import RunKey, labels
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.stores.grants import load_grant, store_root
from airflow_tpu.stores.runs import RunStore
from localcloud.testing import BackgroundCloud
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW
from tests.dags.evidence import events, names_left

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).resolve().parents[2] / "dags" / "tpu_train.py"
DATE = dt.datetime.now(dt.UTC)
OURS, THEIRS = (RunKey(one, "tpu_train", f"manual__{DATE.isoformat()}") for one in (AIRFLOW, OTHER_AIRFLOW))
ZONE = "us-central1-f"


def runs() -> RunStore:
    """Leases of the grant, as the tasks see them."""
    return RunStore(ArtifactsHook(), store_root(load_grant()))


def taken_elsewhere(cloud: BackgroundCloud) -> RunRecord:
    """The lease and the living TPU of a DAG run of these ids in another Airflow."""
    record = runs().acquire(THEIRS, ZONE, dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), Holder(DATE, 0))
    record = runs().update(record, RunRecord.next_incarnation)
    node = {
        "accelerator_type": "v2-8",
        "runtime_version": "tpu-ubuntu2204-base",
        "labels": labels(THEIRS, record.stamp),
    }
    parent = f"projects/local-project/locations/{ZONE}"
    request = tpu_v2.CreateNodeRequest(parent=parent, node_id=record.node_id, node=node)
    cloud.call(lambda: cloud.cloud.service.methods["Tpu/CreateNode"](request))
    return record


def run_here() -> Any:
    """The same DAG, with the same ids, in this Airflow."""
    from airflow.dag_processing.dagbag import DagBag

    dag = DagBag(str(DAG_FILE)).dags[OURS.dag_id]
    dag.deadline = None  # dag.test() fails over it: https://github.com/apache/airflow/issues/73428
    return dag.test(
        run_after=DATE, logical_date=DATE, run_conf={"script": "hello.py", "zone": ZONE, "provisioning": "node"}
    )


def test_run_of_the_same_ids_elsewhere_is_left_alone(cloud: BackgroundCloud, run_dag: Any) -> None:
    """Both runs have a lease and a TPU of their own: this one ends green and touches nothing of the other."""
    record = taken_elsewhere(cloud)
    run = run_here()
    assert (run.run_id, str(run.state)) == (THEIRS.run_id, "success")
    assert names_left(cloud) == [record.node_id]
    assert [event["node_id"] for event in events(cloud, "opened")] == [OURS.node_id(1)]
    assert runs().read(THEIRS) == record
