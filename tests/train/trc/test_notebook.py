# SPDX-License-Identifier: Apache-2.0
"""A notebook as a script: its parameters, its output, and what is left of it when a cell fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trc.notebook import parameters

LIBRARY = Path(__file__).resolve().parents[3] / "include" / "train"


def test_parameters() -> None:
    """The ways in which people write them; Python's literals are values, everything else is text."""
    words = "--lr 1e-3 --name=a --debug --sizes [1,2] -p depth 3 -r tag 007 --offset=-1 --use-bias false"
    assert parameters(words.split()) == {
        "lr": 1e-3, "name": "a", "debug": True, "sizes": [1, 2],
        "depth": 3, "tag": "007", "offset": -1, "use_bias": False,
    }  # fmt: skip
    for wrong in ("stray", "-p lr", "--1x 2"):
        with pytest.raises(ValueError, match=r"parameter|needs|variable"):
            parameters(wrong.split())


def run(tmp_path: Path, *sources: str) -> tuple[int, str, dict[str, Any]]:
    """Run cells, the first of which has the defaults; exit status, what was printed, the executed notebook."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": [source]}
        for source in sources
    ]
    cells[0]["metadata"] = {"tags": ["parameters"]}
    kernel = {"name": "somebodys-own", "display_name": "x", "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "nb.ipynb").write_text(json.dumps(content))
    output = tmp_path / "output"
    output.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "trc.notebook", "nb.ipynb", "--lr", "0.5"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(LIBRARY), "TRC_OUTPUT_DIR": str(output)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, json.loads((output / "nb.ipynb").read_text())


@pytest.mark.slow
def test_cells_run_in_the_working_directory_with_the_parameters(tmp_path: Path) -> None:
    """What they print is in the log, and the executed notebook is an artifact."""
    status, shown, executed = run(tmp_path, "lr = 0.1", "import os; print('lr', lr, os.getcwd())", "lr * 2")
    assert status == 0
    assert f"lr 0.5 {tmp_path}\n1.0\n" in shown
    assert executed["cells"][1]["metadata"]["tags"] == ["injected-parameters"]
    assert executed["cells"][2]["outputs"][0]["text"] == [f"lr 0.5 {tmp_path}\n"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "status", "shown"),
    [
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import sys; sys.exit(75)", 75, ""),
        ("import os; os._exit(9)", 1, "has died"),
    ],
)
def test_a_cell_that_fails_leaves_what_came_before(tmp_path: Path, source: str, status: int, shown: str) -> None:
    """Its exit status is that of the run; a kernel that dies is named."""
    found, told, executed = run(tmp_path, "lr = 0.1", "print('before')", source)
    assert (found, shown in told) == (status, True)
    assert executed["cells"][2]["outputs"][0]["text"] == ["before\n"]
