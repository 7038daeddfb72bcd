# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of PyTorch and Orbax: a run that loses its machine ends like one that nothing disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.framework_run import FrameworkRun
from tests.frameworks.interpreter import PYTHON
from tests.frameworks.undisturbed import Undisturbed
from tests.remote.checkpoint_server import CheckpointServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.frameworks]

SAVED, LOST = 4, 6  # it saves step 4 and is killed after step 6


@pytest.mark.parametrize("name", ["torch", "orbax"])
def test_files_survive_the_machine(bucket: CheckpointServer, tmp_path: Path, name: str) -> None:
    """Saved to the disk, they are in the bucket before the machine is lost, and the next attempt finds them again."""
    program = (PYTHON, str(Path(__file__).with_name("programs") / f"{name}_training.py"))
    run = FrameworkRun(tmp_path / "run", bucket, (*program, "$TRC_CHECKPOINT_DIR"))
    with run.start(steps=LOST), Undisturbed(tmp_path / "whole", *program, "{folder}") as whole:
        run.mirrored(SAVED)
        run.lose_machine()
        run.start()
        assert run.ended_as(name) == whole.ended_as(name)
        assert f"begins at step {SAVED}\n" in run.log
