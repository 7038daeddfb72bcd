"""Whole DAG runs in this process (``dag.test``), against a local cloud of their own."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "trc-local"


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's metadata database, once per process."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture(scope="session")
def private_key() -> str:
    """Key of the SSH connection."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_key: str) -> Iterator[BackgroundCloud]:
    """A local cloud with the grant's bucket, and the two connections that lead to it."""
    config = LocalCloudConfig(state_dir=tmp_path / "cloud", buckets={BUCKET: "US-CENTRAL1"})
    with BackgroundCloud(config) as running:
        ends = running.endpoints
        extra = {
            "project": ends.project_id,
            "is_anonymous": True,
            "tpu_api_endpoint": ends.tpu_api_endpoint,
            "tpu_insecure": True,
            "storage_api_endpoint": ends.storage_api_endpoint,
            "ssh_port": ends.ssh_port,
        }
        google = {"conn_type": "google_cloud_platform", "extra": extra}
        ssh = {"conn_type": "ssh", "login": "trainer", "extra": {"private_key": private_key}}
        monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(google))
        monkeypatch.setenv("AIRFLOW_CONN_TPU_SSH_DEFAULT", json.dumps(ssh))
        yield running


@dataclass
class Outcome:
    """What a DAG run left behind.

    :param state: of the run.
    :param tasks: state of each task.
    :param tries: number of tries of each task.
    :param log: every log line of this process during the run.
    """

    state: str
    run_id: str
    tasks: dict[str, str]
    tries: dict[str, int]
    xcom: dict[str, Any] = field(default_factory=dict)
    log: str = ""


@pytest.fixture
def run_dag(database: None, cloud: BackgroundCloud, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``tpu_train`` (or another DAG) to its end with some fields of the form."""

    def run(dag: Any = None, **conf: Any) -> Outcome:
        from airflow.dag_processing.dagbag import DagBag

        if dag is None:
            dag = DagBag(str(ROOT / "dags" / "tpu_train.py")).dags["tpu_train"]
        capfd.readouterr()
        result = dag.test(run_conf={"script": "hello.py", "zone": "us-central1-f", **conf})
        captured = capfd.readouterr()
        instances = result.get_task_instances()
        return Outcome(
            state=str(result.state),
            run_id=result.run_id,
            tasks={ti.task_id: str(ti.state) for ti in instances},
            tries={ti.task_id: ti.try_number for ti in instances},
            xcom={ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in instances},
            log=captured.out + captured.err,
        )

    logging.getLogger("airflow_tpu").setLevel(logging.INFO)
    return run
