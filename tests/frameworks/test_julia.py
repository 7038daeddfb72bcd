# SPDX-License-Identifier: Apache-2.0
"""The contract of the Julia project, with a stand-in for Julia: its arithmetic has not been run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_tpu.core.source.program import program_of
from tests.frameworks.framework_run import FrameworkRun
from tests.remote.checkpoint_server import CheckpointServer
from tests.train.script_run import SCRIPTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

STAND_IN = Path(__file__).with_name("programs") / "stand_in_julia.py"


def test_a_julia_training_continues_from_the_file_that_it_replaces(bucket: CheckpointServer, tmp_path: Path) -> None:
    """``julia`` of the PATH finds what the program reads in its environment, and its file again on another machine."""
    (tmp_path / "bin").mkdir()
    julia = tmp_path / "bin" / "julia"
    julia.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    julia.chmod(0o755)
    program, _ = program_of("train.jl")
    command = ("env", f"PATH={julia.parent}:/usr/bin:/bin", program, str(SCRIPTS / "julia" / "train.jl"), "250")
    with FrameworkRun(tmp_path / "run", bucket, command, {"TRC_SEED": "7"}) as run:
        run.start(steps=120)
        run.mirrored(100)
        run.lose_machine()
        run.start()
        assert run.ended_as("metrics") == {"steps": 250}
        assert "begins at step 100\n" in run.log
