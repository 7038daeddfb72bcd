# SPDX-License-Identifier: Apache-2.0
"""A TPU that one process holds: the second one gets libtpu's text, and the result says whose the first one is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.errors import AcceleratorMissing, RunFailed
from localcloud.vm import device
from tests.remote.vm import Machine, until

WAIT = "until [ -s ~/.accel0 ]; do :; done"


@pytest.fixture
def tpu_vm(machine: Machine) -> Machine:
    """A machine with a TPU."""
    device.install(machine.home / "bin")
    return machine


@pytest.fixture
def stranger(tpu_vm: Machine) -> Iterator[int]:
    """A process of a person who works on the TPU VM."""
    command = [str(tpu_vm.home / "bin" / device.PROGRAM), "sleep", "1000"]
    with subprocess.Popen(command, env=tpu_vm.environment()) as process:
        until(lambda: (Path(tpu_vm.home) / ".accel0").exists() and (tpu_vm.home / ".accel0").read_text())
        yield process.pid
        process.kill()


def test_a_run_that_is_alone_gets_the_tpu(tpu_vm: Machine) -> None:
    """The command runs, and a later attempt finds the device free."""
    for _ in range(2):
        assert subprocess.run([tpu_vm.home / "bin" / device.PROGRAM, "true"], env=tpu_vm.environment()).returncode == 0
    assert tpu_vm.run(device.PROGRAM, "echo", "trained")["tpu_holder"] == ""


def test_a_strangers_process_is_named(tpu_vm: Machine, stranger: int) -> None:
    """Pid and program are in the result; the process lives on, and the next try gets another TPU."""
    result = RunResult.from_json(tpu_vm.run(device.PROGRAM, "true"))
    assert f"The TPU is already in use by process with pid {stranger}." in tpu_vm.log().decode()
    assert result.tpu_holder == f"{stranger} (sleep 1000)"
    error = classify_exit(result)
    assert isinstance(error, AcceleratorMissing)
    assert f"held by {stranger} (sleep 1000), which is not of this run" in str(error)


def test_a_process_of_the_script_itself_is_its_own_fault(tpu_vm: Machine) -> None:
    """Another TPU would not help a script that opens the TPU twice."""
    result = RunResult.from_json(tpu_vm.run("sh", "-c", f"with-tpu sleep 1000 & {WAIT}; with-tpu true"))
    assert result.tpu_holder == protocol.OWN_PROCESS
    error = classify_exit(result)
    assert isinstance(error, RunFailed)
    assert "open it in one process alone" in str(error)


@pytest.mark.parametrize(
    "said",
    [
        "libtpu.so already in use by another process probably owned by another user.",
        "ABORTED: Internal error when accessing libtpu multi-process lockfile.",
    ],
)
def test_a_lock_that_names_no_process(machine: Machine, said: str) -> None:
    """What an ended process has left, or one of another login holds, goes with the TPU VM as well."""
    result = RunResult.from_json(machine.run("sh", "-c", f"echo '{said}' >&2; exit 1"))
    assert isinstance(classify_exit(result), AcceleratorMissing)


def test_a_run_that_ends_well_is_not_asked(machine: Machine) -> None:
    """A script may try the TPU in a second process and do without: that is no failure."""
    assert machine.run("echo", "The TPU is already in use by process with pid 1.")["tpu_holder"] == ""
