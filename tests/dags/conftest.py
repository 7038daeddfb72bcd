# SPDX-License-Identifier: Apache-2.0
"""Whole DAG runs in this process (``dag.test``), against a local cloud of their own."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud
from tests.dags.evidence import BUCKET

ROOT = Path(__file__).resolve().parents[2]
MAIN_DAG = ROOT / "dags" / "tpu_train.py"
BUNDLES = [
    {
        "name": name,
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(path)},
    }
    for name, path in (
        ("dags-folder", ROOT / "dags"),
        ("variants", Path(__file__).parent / "files"),
        ("examples", ROOT / "docs" / "examples"),
    )
]


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
        google = running.endpoints.airflow_connection()
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
    :param log: what the tasks and the modules of the package have printed and logged, in order, as in a worker's log.
    """

    state: str
    run_id: str
    tasks: dict[str, str]
    tries: dict[str, int]
    xcom: dict[str, Any] = field(default_factory=dict)
    log: str = ""


class PrintedLog(logging.Handler):
    """Print what the package's modules log among the lines of the tasks, as a worker does."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record to standard output as it is at this moment."""
        sys.stdout.write(f"{self.format(record)}\n")
        sys.stdout.flush()


@pytest.fixture
def package_log() -> Iterator[None]:
    """Print everything from level INFO on that the package logs during a test."""
    logger, handler = logging.getLogger("airflow_tpu"), PrintedLog()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def run_dag(
    database: None,
    cloud: BackgroundCloud,
    package_log: None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Outcome]:
    """Run ``tpu_train`` (or another DAG, of another file) to its end with some fields of the form."""
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(BUNDLES))

    def run(dag_id: str = "tpu_train", file: Path = MAIN_DAG, **conf: Any) -> Outcome:
        dag = DagBag(str(file)).dags[dag_id]
        dag.deadline = None  # dag.test() fails over it: https://github.com/apache/airflow/issues/73428
        capfd.readouterr()
        result = dag.test(run_conf={"script": "hello.py", "zone": "us-central1-f", **conf})
        captured = capfd.readouterr()
        return outcome(result, captured.out + captured.err)

    return run


def outcome(result: Any, log: str) -> Outcome:
    """What a finished run has left in Airflow."""
    instances = result.get_task_instances()
    return Outcome(
        state=str(result.state),
        run_id=result.run_id,
        tasks={ti.task_id: str(ti.state) for ti in instances},
        tries={ti.task_id: ti.try_number for ti in instances},
        xcom={ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in instances},
        log=log,
    )
