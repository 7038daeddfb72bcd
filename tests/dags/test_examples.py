# SPDX-License-Identifier: Apache-2.0
"""The example DAGs of the documentation, run as they stand."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import asset_events, check_books, events, names_left, object_names, objects, upload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"

SHOWS_ARGUMENTS = """
import json, os, pathlib, sys
output = pathlib.Path(os.environ["TRC_OUTPUT_DIR"])
(output / "metrics.json").write_text(json.dumps({"arguments": sys.argv[1:], "attempt": os.environ["TRC_ATTEMPT"]}))
"""


def test_train_then_evaluate(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Both run on one TPU, each with an attempt, artifacts and a log of its own; the second one sees the first's."""
    script = upload(cloud, "scripts/shows.py", SHOWS_ARGUMENTS)
    outcome = run_dag("train_then_evaluate", EXAMPLES / "train_then_evaluate.py", script=script, provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert len(events(cloud, "opened")) == 1
    trained, evaluated = outcome.xcom["copy"], outcome.xcom["collect"]
    assert (trained["uri"][-16:], evaluated["uri"][-19:]) == ("/train/attempt-1", "/evaluate/attempt-1")
    assert trained["metrics"] == {"arguments": [], "attempt": "1"}
    assert evaluated["metrics"] == {"arguments": ["--model", f"{trained['uri']}/output"], "attempt": "1"}
    assert outcome.xcom["compare"] == [trained["uri"], evaluated["uri"]]
    assert len([name for name in object_names(cloud) if name.endswith("/attempt-1/log.txt")]) == 2
    (closed,) = events(cloud, "closed")
    sizes = [len(body) for name, body in objects(cloud).items() if "/attempt-1/" in name]
    assert sum(sizes) >= closed["artifact_bytes"] == trained["bytes"] + evaluated["bytes"]
    check_books(cloud)
    assert names_left(cloud) == []


def test_branch(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The branch that is not taken trains nothing, and the copy finds the one that is."""
    script = upload(cloud, "scripts/shows.py", SHOWS_ARGUMENTS)
    outcome = run_dag("branch", EXAMPLES / "branch.py", script=script, seed=2, provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert (outcome.tasks["quick"], outcome.tasks["thorough"]) == ("skipped", "success")
    assert outcome.xcom["copy"]["metrics"]["arguments"] == ["--steps", "900"]
    assert names_left(cloud) == []


REPORTS_RATE = """
import json, os, pathlib, sys
output, rate = pathlib.Path(os.environ["TRC_OUTPUT_DIR"]), float(sys.argv[2])
(output / "metrics.json").write_text(json.dumps({"accuracy": 1 - rate}))
"""


def test_three_learning_rates(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Three TPUs train with a value each, and what is made of the three results is one task's concern."""
    script = upload(cloud, "scripts/rates.py", REPORTS_RATE)
    outcome = run_dag("three_learning_rates", EXAMPLES / "three_learning_rates.py", script=script, provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert len({event["run"] for event in events(cloud, "opened")}) == 3
    reported = {name: body for name, body in objects(cloud).items() if name.endswith("/output/metrics.json")}
    (best,) = (name for name, body in reported.items() if b"0.999" in body)
    assert outcome.xcom["best"].endswith(best.split("/output/")[0])
    assert names_left(cloud) == []


def test_two_types(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The larger one is asked for when the smaller one is gone."""
    outcome = run_dag("two_types", EXAMPLES / "two_types.py")
    assert outcome.state == "success", outcome.log[-4000:]
    small, large = sorted(events(cloud, "opened"), key=lambda event: str(event["requested_at"]))
    assert [(one["session"], one["accelerator_type"]) for one in (small, large)] == [
        ("small", "v2-8"),
        ("large", "v5litepod-4"),
    ]
    (ended,) = (event for event in events(cloud, "closed") if event["node_id"] == small["node_id"])
    assert ended["ended_at"] < large["requested_at"]


def test_after_sensor_and_asset(
    cloud: BackgroundCloud, run_dag: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The TPU is asked for after the file is there, and what was made is announced."""
    (tmp_path / "ready").touch()
    monkeypatch.setenv("TRAINING_DATA", str(tmp_path))
    outcome = run_dag("after_sensor_and_asset", EXAMPLES / "after_sensor_and_asset.py")
    assert outcome.state == "success", outcome.log[-4000:]
    assert outcome.tasks["ready"] == "success"
    assert asset_events("trained", outcome.run_id) == [{}]


def test_on_new_champion(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Started by hand it has no event, and measures nothing in particular."""
    outcome = run_dag("on_new_champion", EXAMPLES / "on_new_champion.py")
    assert outcome.state == "success", outcome.log[-4000:]
    assert names_left(cloud) == []


def test_own_notifier(cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed script makes the run red, and the notifier posts that."""
    posted: list[bytes] = []

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Chat) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("CHAT_URL", f"http://127.0.0.1:{server.server_port}")
        script = upload(cloud, "scripts/bad.py", "raise SystemExit(3)\n")
        outcome = run_dag("own_notifier", EXAMPLES / "own_notifier.py", script=script, provisioning="node")
        # dag.test() of Airflow 3.3.2 calls the callback with the stored DAG, which renders no template of a notifier;
        # its DAG processor does it as here.
        dag = runpy.run_path(str(EXAMPLES / "own_notifier.py"))["dag"]
        dag.on_failure_callback({"dag": dag, "run_id": outcome.run_id, "reason": "task_failure"})
        server.shutdown()
    assert outcome.state == "failed"
    assert posted == [f'{{"text": "own_notifier {outcome.run_id} has failed"}}'.encode()]
