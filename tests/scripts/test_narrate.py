# SPDX-License-Identifier: Apache-2.0
"""What scripts/demo prints while a DAG runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import narrate


def record(event: str, logger: str = "airflow.models.dagrun", level: str = "info", **more: Any) -> str:
    """One line of Airflow's JSON log."""
    return json.dumps({"event": event, "logger": logger, "level": level, **more}) + "\n"


def told(*lines: str) -> list[str]:
    """What a person sees of these lines, the times cut off."""
    return [line.partition(" s  ")[2] for line in narrate.narrate(lines, lambda: 1.5)]


def test_airflows_own_chatter_is_left_out() -> None:
    """Of an ordinary run a person sees the tasks and what the project says, and nothing of Airflow's housekeeping."""
    lines = [
        record("[DAG TEST] starting task_id=train map_index=-1", "airflow.sdk.definitions.dag"),
        record("Filling up the DagBag"),
        record("step 100 of 400", "airflow.task.operators.airflow_tpu.operators.run.CloudTPUTrainOperator"),
        record("::group::Ask for the TPU", "airflow_tpu.clients.log_groups"),
        record("READY", "airflow_tpu.hooks.tpu"),
        record("::endgroup::", "airflow_tpu.clients.log_groups"),
        record("not ours", "airflow_tpu_of_somebody_else"),
        record("AssetModel SerializedAsset(name='a') not found; cannot create asset event.", level="warning"),
        record("Emitting event for inactive AssetModel SerializedAsset(name='a')", level="warning"),
    ]
    assert told(*lines) == ["--- task train", "step 100 of 400", "READY"]


def test_a_failure_of_anybody_is_shown_with_its_causes() -> None:
    """An error of any logger is shown, with one line for each exception of its chain."""
    chain = [{"exc_type": "StockOut", "exc_value": "no capacity"}, {"exc_type": "RpcError", "exc_value": "code 8"}]
    shown = told(record("Task failed with exception", "task", "error", exception=chain))
    assert shown == ["ERROR: Task failed with exception", "StockOut: no capacity", "RpcError: code 8"]


@pytest.mark.parametrize("line", ["plain print\n", "[1, 2]\n", "{broken\n", '{"no": "event"}\n'])
def test_what_is_not_a_log_record_is_shown_as_it_is(line: str) -> None:
    """Output that is not a record of Airflow's log is a program's own and passes through."""
    assert told(line) == [line.rstrip()]


def test_the_whole_log_is_kept_and_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    """The file has every line, shown or not, and the exit code is that of the command."""
    hidden = record("housekeeping")
    command = f"import sys; sys.stdout.write({hidden!r}); sys.exit(3)"
    assert narrate.main(str(tmp_path / "log"), sys.executable, "-c", command) == 3
    assert (tmp_path / "log").read_text(encoding="utf-8") == hidden
