# SPDX-License-Identifier: Apache-2.0
"""The main job, end to end: a real DAG, a real TPU API, real SSH, a real bucket."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu.cli.main import main
from localcloud.testing import BackgroundCloud
from localcloud.tpu_api.audit import entries
from tests.dags.evidence import check_books, names_left, objects, upload, usage_events

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

REQUESTS = 85
"""Requests to Cloud Storage of a run of one training, all tasks and the TPU VM together, at most."""

FAILING = """
import os, pathlib, sys
pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "half.txt").write_text("half")
print("about to fail")
sys.exit(3)
"""


def test_trains_copies_reports_and_leaves_nothing(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The chain ends green, the artifacts are in the bucket, the TPU is gone, the meter agrees with the ledger.

    What the script prints lies in no folded part of the log, and the command for a login comes before it. What *train*
    has brought to the bucket is not copied again, and no task asks twice what a bucket is.
    """
    outcome = run_dag(provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert set(outcome.tasks.values()) == {"success"}
    folded = outcome.log.index("::group::Ship the script and start it")
    unfolded = outcome.log[outcome.log.index("::endgroup::", folded) :].partition("::group::")[0]
    assert "gcloud compute tpus tpu-vm ssh" in unfolded.partition("hello from worker 0")[0]
    assert "hello from worker 0, attempt 1" in unfolded
    assert "Upload from the TPU what is not in the bucket yet" not in outcome.log
    asked = cloud.call(cloud.cloud.storage.stats)["requests"]
    assert asked["buckets.get"] == 4
    assert sum(asked.values()) <= REQUESTS, asked
    names = list(objects(cloud))
    assert any(name.endswith("/attempt-1/manifest.json") for name in names)
    assert any("/attempt-1/output/" in name for name in names)
    check_books(cloud)
    assert names_left(cloud) == []


def test_failing_script_loses_its_tpu_but_not_its_work(cloud: BackgroundCloud, run_dag: Run, tmp_path: Path) -> None:
    """Exit code and last lines are in the error, log and files in the bucket, the TPU is gone, the run is red.

    Its usage has left as an event of the asset, and the cloud's own log of creates and deletes agrees with the ledger.
    """
    outcome = run_dag(script=upload(cloud, "scripts/it fails.py", FAILING), provisioning="node")
    assert outcome.state == "failed"
    assert outcome.tasks["train"] == "failed"
    assert outcome.tasks["delete"] == "success"
    assert outcome.tasks["report"] == "success"
    assert outcome.tasks["verdict"] == "failed"
    assert "copy (upstream_failed), train (failed)" in outcome.log
    assert outcome.tries["train"] == 1
    assert "exit code 3" in outcome.log
    assert "about to fail" in outcome.log
    names = list(objects(cloud))
    assert any(name.endswith("/attempt-1/log.txt") for name in names)
    assert any(name.endswith("/attempt-1/output/half.txt") for name in names)
    assert names_left(cloud) == []
    (event,) = usage_events(outcome.run_id)
    assert [row["run_id"] for row in event["incarnations"]] == [outcome.run_id]
    assert event["covered"]["chip_hours"] > 0
    export = tmp_path / "audit.json"
    export.write_text(json.dumps(entries(cloud.cloud.config.state_dir)), encoding="utf-8")
    assert main(["usage", "reconcile", str(export)]) == 0
