# SPDX-License-Identifier: Apache-2.0
"""The smallest script of the contract."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.train.script_run import SCRIPTS, clean_environment


def hello(directory: Path, **environment: str) -> str:
    """Run it and return what it prints."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "hello.py")],
        cwd=directory,
        env={**clean_environment(), **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_it_writes_one_file_into_the_output_directory(tmp_path: Path) -> None:
    """Each worker of a slice writes a file of its own, where the pipeline says."""
    said = hello(tmp_path, TRC_OUTPUT_DIR=str(tmp_path / "out"), TRC_WORKER_ID="2", TRC_ATTEMPT="3")
    assert said == "hello from worker 2, attempt 3\n"
    assert (tmp_path / "out" / "hello-2.txt").read_text() == "hello\n"


def test_it_works_by_hand(tmp_path: Path) -> None:
    """Without any variable the file lies in ./output."""
    assert "worker 0" in hello(tmp_path)
    assert (tmp_path / "output" / "hello-0.txt").exists()


def test_it_is_as_short_as_promised() -> None:
    """The documentation calls it a script in ten lines."""
    lines = (SCRIPTS / "hello.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 10
