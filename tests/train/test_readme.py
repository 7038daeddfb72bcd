# SPDX-License-Identifier: Apache-2.0
"""The script printed in the README does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.script_run import SCRIPTS, clean_environment
from trc.checkpoint import CheckpointStore


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The first Python block of the README, counting to 20 instead of 1000."""
    blocks = re.findall(r"```python\n(.*?)```", (SCRIPTS / "README.md").read_text(), re.DOTALL)
    path = tmp_path / "own.py"
    assert blocks[0].count(", 1000)") == 1
    path.write_text(blocks[0].replace(", 1000)", ", 20)"))
    return path


def run(script: Path, **environment: str) -> int:
    """Run the script with the library beside it."""
    variables = {**clean_environment(), "PYTHONPATH": str(SCRIPTS), **environment}
    return subprocess.run([sys.executable, str(script)], cwd=script.parent, env=variables, check=False).returncode


def test_the_script_in_the_readme_runs_to_its_end(script: Path) -> None:
    """It ends with 0 and leaves the sum of all steps in the output directory."""
    assert run(script) == 0
    assert (script.parent / "output" / "total.txt").read_text() == str(sum(range(20)))


def test_the_script_in_the_readme_resumes(script: Path) -> None:
    """With a checkpoint of step 15 it adds only the last five steps."""
    store = CheckpointStore(script.parent / "output" / "checkpoints", "steps=1000")
    store.commit(15, lambda directory: (directory / "total").write_text("1000000"), "periodic")
    assert run(script) == 0
    assert (script.parent / "output" / "total.txt").read_text() == str(1_000_000 + sum(range(15, 20)))


def test_the_script_in_the_readme_stops_on_request(script: Path) -> None:
    """With the stop file in place it ends with 75 and writes no output."""
    (script.parent / "stop").touch()
    assert run(script, TRC_STOP_FILE="stop") == 75
    assert not (script.parent / "output").exists()
