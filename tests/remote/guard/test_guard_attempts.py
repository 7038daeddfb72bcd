# SPDX-License-Identifier: Apache-2.0
"""Which attempt a guard is responsible for."""

from __future__ import annotations

from airflow_tpu.core.run.job import RunRef
from tests.remote.guard_probe import ask_guard
from tests.remote.vm import Machine


def test_the_guard_of_an_earlier_attempt_ends(machine: Machine) -> None:
    """A later attempt on the same machine is guarded by itself; a start that failed leaves nothing to guard."""
    machine.run("true")
    assert ask_guard(machine, "print(one.is_responsible())") == "True"
    machine.start("true", run=RunRef("run", 2))
    assert ask_guard(machine, "print(one.is_responsible())") == "False"
    gone = "import shutil; shutil.rmtree(str(run.run_path)); print(one.is_responsible())"
    assert ask_guard(machine, gone) == "False"


def test_the_guard_of_the_training_before_ends(machine: Machine) -> None:
    """It does not know the deadline of the one that uses the machine now, and would delete the TPU under it."""
    machine.run("true")
    machine.start("true", run=RunRef("evaluate", 1))
    assert ask_guard(machine, "print(one.is_responsible())") == "False"
    later = "import os; os.utime(str(run.path / 'job.json')); print(one.is_responsible())"
    assert ask_guard(machine, later) == "True"
