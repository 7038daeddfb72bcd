# SPDX-License-Identifier: Apache-2.0
"""The shipped TensorFlow example, killed with its machine in the middle of the training, loses nothing but time."""

from __future__ import annotations

import shutil
import sys

import pytest

from airflow_tpu.core.run.job import RunRef
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import REPOSITORY, until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

SCRIPT = REPOSITORY / "include" / "train" / "digits.py"
STEPS = 600
TIMEOUT = 240.0  # two imports of TensorFlow and two trainings on a busy machine
DIGITS = (
    sys.executable, str(SCRIPT),
    "--steps", str(STEPS), "--batch-size", "16", "--eval-every", "50", "--save-every", "10",
)  # fmt: skip


def final_state(run: MirroredRun) -> dict[str, bytes]:
    """Every variable and the history at the last step, as bytes."""
    directory = run.checkpoints / f"step-{STEPS:010d}"
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "MANIFEST.json"}


def finish(run: MirroredRun, ref: RunRef) -> None:
    """Wait for the end of an attempt, which must be a good one."""
    until((run.machine.attempt(ref) / "exit.json").exists, TIMEOUT)
    assert run.machine.result(ref)["exit_code"] == 0, run.machine.log(ref).decode()


def test_a_training_whose_machine_vanishes_ends_with_the_same_bits(run: MirroredRun, moved_run: MirroredRun) -> None:
    """Killed with its machine and disk, the run continues on another one and equals an undisturbed one bit for bit."""
    first = run.start(*DIGITS)
    until(lambda: (run.mirror(first).get("last_step") or 0) >= 20, TIMEOUT)
    run.machine.kill_all()
    shutil.rmtree(run.machine.home / ".airflow-tpu")
    second = moved_run.start(*DIGITS, attempt=2)
    finish(moved_run, second)
    result = moved_run.machine.result(second)
    assert 20 <= result["resumed_step"] < STEPS
    assert (result["checkpoint_durable"], result["last_durable_step"]) == (True, STEPS)
    assert f"resuming from step {result['resumed_step']} (attempt 1 saved it" in moved_run.machine.log(second).decode()
    undisturbed = run.start(*DIGITS, checkpoints_uri="")
    finish(run, undisturbed)
    assert final_state(moved_run) == final_state(run)
