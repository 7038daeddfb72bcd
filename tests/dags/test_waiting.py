# SPDX-License-Identifier: Apache-2.0
"""Waiting in the triggerer or in the worker, for a queued resource or a node: the same behaviour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import check_books, events, names_left, objects, upload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
FLOOD = """
import os, pathlib, sys
sys.stdout.write("".join(f"line {{number:094d}}\\n" for number in range(30_000)))
pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "done.txt").write_text("done")
sys.stdout.flush()
sys.exit({code})
"""
VARIANTS = Path(__file__).parent / "files" / "variants.py"
DEFERRALS = ("waiting in the triggerer until", "the log continues in the triggerer")


def artifacts(cloud: BackgroundCloud) -> set[str]:
    """Names of what a run has put into the bucket, without the run's own name."""
    return {name.split("/attempt-")[-1] for name in objects(cloud) if "/attempt-" in name}


@pytest.mark.parametrize(
    ("dag_id", "provisioning"),
    [
        ("tpu_train_deferring", "queued-resource"),
        ("tpu_train_blocking", "node"),
        pytest.param("tpu_train_deferring", "node", marks=pytest.mark.soak),
        pytest.param("tpu_train_blocking", "queued-resource", marks=pytest.mark.soak),
    ],
)
def test_same_run_whatever_the_wait(
    cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch, dag_id: str, provisioning: str
) -> None:
    """Tasks, artifacts, log and books are the same for both ways to wait and both ways to ask for a TPU."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS", "0")
    outcome = run_dag(dag_id, VARIANTS, provisioning=provisioning)
    assert outcome.state == "success", outcome.log[-4000:]
    assert set(outcome.tries.values()) == {1}
    assert [words in outcome.log for words in DEFERRALS] == [dag_id == "tpu_train_deferring"] * 2
    assert "hello from worker 0, attempt 1" in outcome.log
    assert artifacts(cloud) == {"1/output/hello-0.txt", "1/log.txt", "1/manifest.json"}
    assert set(outcome.xcom["train"]) == {"attempt", "exit_code", "training_seconds"}
    (closed,) = events(cloud, "closed")
    assert outcome.xcom["delete"] == [{"node": closed["node_id"], "reason": "finished"}]
    check_books(cloud)
    assert names_left(cloud) == []


@pytest.mark.parametrize(("code", "state"), [(0, "success"), (3, "failed")])
def test_flood_is_read_by_a_worker(
    cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch, code: int, state: str
) -> None:
    """A log that is too much for a triggerer goes back to a worker; the script runs once, however it ends."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__INLINE_SECONDS", "0")
    script = upload(cloud, "scripts/flood.py", FLOOD.format(code=code))
    outcome = run_dag("tpu_train_deferring", VARIANTS, provisioning="node", script=script)
    assert outcome.state == state, outcome.log[-4000:]
    assert "its log continues in a worker" in outcome.log
    assert outcome.tries["train"] == 1
    kept = {name: body for name, body in objects(cloud).items() if name.endswith("/log.txt")}
    assert [name.split("/")[-2] for name in kept] == ["attempt-1"]
    (text,) = kept.values()
    assert text.decode().splitlines() == [f"line {number:094d}" for number in range(30_000)]
    assert [outcome.log.count(f"line {number:094d}") for number in (0, 20_000)] == [1, 1]
    assert f"line {29_999:094d}" in outcome.log  # a failure repeats it
    check_books(cloud)
    assert names_left(cloud) == []
