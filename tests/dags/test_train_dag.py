"""The main job, end to end: a real DAG, a real TPU API, real SSH, a real bucket."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from localcloud.testing import BackgroundCloud

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

FAILING = """
import os, pathlib, sys
pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "half.txt").write_text("half")
print("about to fail")
sys.exit(3)
"""


def objects(cloud: BackgroundCloud) -> dict[str, bytes]:
    """Every object of the grant's bucket, by name."""
    client = storage.Client(
        "local-project", AnonymousCredentials(), client_options={"api_endpoint": cloud.endpoints.storage_api_endpoint}
    )
    return {blob.name: blob.download_as_bytes() for blob in client.list_blobs("trc-local")}


def ledger(cloud: BackgroundCloud) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Opened and closed events."""
    found = objects(cloud)
    return tuple(  # type: ignore[return-value]
        [json.loads(body) for name, body in sorted(found.items()) if name.endswith(f"/{kind}.json")]
        for kind in ("opened", "closed")
    )


def ledger_seconds(cloud: BackgroundCloud) -> float:
    """READY seconds of all incarnations as the ledger has them."""
    _, closed = ledger(cloud)
    spans = [(event["ready_at"], event["ended_at"]) for event in closed if event["ready_at"]]
    instants = [(dt.datetime.fromisoformat(start), dt.datetime.fromisoformat(end)) for start, end in spans]
    return sum((end - start).total_seconds() for start, end in instants)


def metered_seconds(cloud: BackgroundCloud) -> float:
    """READY seconds of all nodes as the local cloud's meter has them."""
    return float(sum(node["ready_seconds"] for node in cloud.meter()["nodes"]))


def upload(cloud: BackgroundCloud, name: str, text: str) -> str:
    """Put a script into the bucket; returns its URI."""
    client = storage.Client(
        "local-project", AnonymousCredentials(), client_options={"api_endpoint": cloud.endpoints.storage_api_endpoint}
    )
    client.bucket("trc-local").blob(name).upload_from_string(text)
    return f"gs://trc-local/{name}"


def assert_nothing_left(cloud: BackgroundCloud) -> None:
    """No node, no queued resource and no process of a TPU VM is left."""
    assert cloud.snapshot() == {"nodes": [], "queued_resources": []}


def test_trains_copies_reports_and_leaves_nothing(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The chain ends green, the artifacts are in the bucket, the TPU is gone, the meter agrees with the ledger."""
    outcome = run_dag(provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert set(outcome.tasks.values()) == {"success"}
    names = list(objects(cloud))
    assert any(name.endswith("/attempt-1/manifest.json") for name in names)
    assert any("/attempt-1/output/" in name for name in names)
    assert ledger_seconds(cloud) == pytest.approx(metered_seconds(cloud), abs=0.5)
    assert_nothing_left(cloud)


def test_failing_script_loses_its_tpu_but_not_its_work(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Exit code and last lines are in the error, log and files in the bucket, the TPU is gone, the run is red."""
    outcome = run_dag(script=upload(cloud, "scripts/it fails.py", FAILING), provisioning="node")
    assert outcome.state == "failed"
    assert outcome.tasks["train"] == "failed"
    assert outcome.tasks["delete"] == "success"
    assert outcome.tasks["report"] == "success"
    assert outcome.tasks["verdict"] == "upstream_failed"
    assert outcome.tries["train"] == 1
    assert "exit code 3" in outcome.log
    assert "about to fail" in outcome.log
    names = list(objects(cloud))
    assert any(name.endswith("/attempt-1/log.txt") for name in names)
    assert any(name.endswith("/attempt-1/output/half.txt") for name in names)
    assert_nothing_left(cloud)
