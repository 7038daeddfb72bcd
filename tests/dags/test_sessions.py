# SPDX-License-Identifier: Apache-2.0
"""Sessions compose: several in a DAG, in task groups, mapped; and a DAG run is red when the work of one of them was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import check_books, events, names_left, object_names, upload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
FILE = Path(__file__).parent / "files" / "sessions.py"


def test_every_session_has_a_tpu_of_its_own(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Two mapped ones and one of another type train each on its own; the one on no branch asks for nothing.

    The report of the DAG run has all of them, and the run is green although a session was skipped.
    """
    outcome = run_dag("many_sessions", FILE)
    assert outcome.state == "success", outcome.log[-4000:]
    opened = events(cloud, "opened")
    assert sorted((event["session"], event["accelerator_type"]) for event in opened) == [
        ("big", "v5litepod-4"),
        ("one", "v2-8"),
        ("one", "v2-8"),
    ]
    assert len({event["run"] for event in opened}) == 3
    assert len({event["dag_run"] for event in opened}) == 1
    assert len({name.split("/")[1] for name in object_names(cloud) if "/output/" in name}) == 3
    assert len(outcome.xcom["report"]["incarnations"]) == 3
    assert outcome.tasks["unwanted.delete"] == "skipped"
    assert outcome.tasks["unwanted.verdict"] == "success"
    check_books(cloud)
    assert names_left(cloud) == []


def test_failed_work_makes_the_run_red(
    cloud: BackgroundCloud, run_dag: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the last task of the work, the delete and what comes after it succeed; the DAG's callback is called."""
    monkeypatch.setenv("TEST_SESSIONS_NOTICES", str(tmp_path / "notice"))
    outcome = run_dag("fails_in_the_middle", FILE, script=upload(cloud, "scripts/bad.py", "raise SystemExit(3)\n"))
    states = {name: outcome.tasks[name] for name in ("only.whatever_happens", "only.delete", "afterwards")}
    assert set(states.values()) == {"success"}, outcome.log[-4000:]
    assert (outcome.tasks["only.train"], outcome.tasks["only.verdict"], outcome.state) == ("failed",) * 3
    assert (tmp_path / "notice").read_text() == outcome.run_id
    assert names_left(cloud) == []
