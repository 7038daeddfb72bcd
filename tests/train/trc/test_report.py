# SPDX-License-Identifier: Apache-2.0
"""Progress and result are written so that no reader sees half of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trc.contract import Contract
from trc.report import Reporter, write_atomically, write_json


def contract(**variables: str) -> Contract:
    return Contract.from_environment({"TRC_" + name: value for name, value in variables.items()})


def test_a_file_is_replaced_in_one_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The directory is made, the content is the new one, and no temporary file remains."""
    path = tmp_path / "new" / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new", durable=False)
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_what_is_not_json_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    """A loss of NaN raises instead of leaving a file that no JSON parser reads."""
    write_json(tmp_path / "metrics.json", {"loss": 1.0})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "metrics.json", {"loss": float("nan")})
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"loss": 1.0}


def test_progress_keeps_what_was_said_before(tmp_path: Path) -> None:
    """A report of the state alone does not forget the step; the result carries the status and the exit code."""
    reporter = Reporter(contract(OUTPUT_DIR=str(tmp_path), ATTEMPT="2"), now=lambda: 1234.5678)
    reporter.progress("training", step=10, total_steps=20)
    reporter.progress("saving")
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert progress.pop("pid") > 0
    assert progress == {
        "schema_version": 1,
        "attempt": 2,
        "state": "saving",
        "time": 1234.568,
        "step": 10,
        "total_steps": 20,
    }
    reporter.result("stopped", 75, message="on request")
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["exit_code"], result["attempt"], result["message"]) == (
        "stopped",
        75,
        2,
        "on request",
    )
