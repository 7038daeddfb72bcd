"""The example DAGs of the documentation, run as they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import check_books, events, names_left, object_names, objects, upload

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
