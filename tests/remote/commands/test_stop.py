# SPDX-License-Identifier: Apache-2.0
"""Stopping: all of the run, nothing but the run, as often as asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import RunRef
from tests.remote.vm import LONG_GRACE, Machine, processes_with, until

OTHER = RunRef("other", 1)
# Ignores TERM, and so does its child in a session of its own.
STUBBORN = "trap '' TERM; echo ready; setsid sh -c 'while :; do sleep 0.1; done' & while :; do sleep 0.1; done"


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any run."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def wait_for(machine: Machine, text: bytes) -> None:
    """Wait until the run has printed something."""
    until(lambda: text in machine.log())


def test_a_run_that_listens_ends_by_itself(machine: Machine) -> None:
    """TERM is enough for a script that honours it, and its exit status is the result."""
    machine.start("sh", "-c", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done")
    wait_for(machine, b"ready")
    answer = machine.stop(LONG_GRACE)
    assert answer["state"] == "finished"
    assert (answer["result"]["exit_code"], answer["result"]["stopped"]) == (75, True)
    assert answer["result"]["stop_command"] is True


def test_the_stop_file_is_there_before_the_signal(machine: Machine) -> None:
    """A script that polls the stop file sees it, even if it never hears a signal."""
    machine.start("sh", "-c", "trap '' TERM; echo ready; until [ -e $TRC_STOP_FILE ]; do sleep 0.05; done; exit 75")
    wait_for(machine, b"ready")
    assert machine.stop(LONG_GRACE)["result"]["exit_code"] == 75


def test_a_run_that_does_not_listen_is_killed_with_all_it_started(machine: Machine) -> None:
    """After the grace a command that ignores TERM is killed, and so is its child in another session."""
    machine.start("sh", "-c", STUBBORN, environment={"MINE": str(machine.home)})
    wait_for(machine, b"ready")
    answer = machine.stop(0.2)
    assert answer["result"]["signal"] == signal.SIGKILL
    assert answer["survivors"] == []
    assert processes_with(f"MINE={machine.home}") == []


def test_a_stopped_process_hears_the_request(machine: Machine) -> None:
    """A process in state T is continued, so that it can end in peace."""
    machine.start("sh", "-c", "trap 'exit 75' TERM; echo ready; kill -STOP $$; while :; do sleep 0.05; done")
    wait_for(machine, b"ready")
    assert machine.stop(LONG_GRACE)["result"]["exit_code"] == 75


def test_the_machine_going_down_is_a_request_to_stop(machine: Machine) -> None:
    """When an init process sends TERM to everything, the supervisor waits for its command and records the end."""
    machine.start("sh", "-c", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done")
    wait_for(machine, b"ready")
    os.kill(machine.recorded()["supervisor_pid"], signal.SIGTERM)
    result = machine.result()
    assert (result["exit_code"], result["stopped"], result["stop_command"]) == (75, True, False)


def test_stopping_twice_or_after_the_end_changes_nothing(machine: Machine) -> None:
    """The second answer is the first one again."""
    machine.run("true")
    first, second = machine.stop(1.0), machine.stop(1.0)
    assert first == second
    assert (first["state"], first["result"]["stopped"]) == ("finished", False)


def test_a_second_request_can_shorten_the_grace(machine: Machine) -> None:
    """A stop with a long grace is overtaken by one with none."""
    machine.start("sh", "-c", STUBBORN)
    wait_for(machine, b"ready")
    patient = subprocess.Popen(
        machine.command("stop", "--run", "run", "--attempt", "1", "--grace", "600"),
        env=machine.environment(),
        stdout=subprocess.PIPE,
    )
    until((machine.attempt() / protocol.STOP_REQUEST_FILE).exists)
    machine.stop(0.0)
    output, _ = patient.communicate()
    assert protocol.decode(output)["result"]["signal"] == signal.SIGKILL


def test_a_request_during_the_setup_keeps_the_command_from_starting(machine: Machine) -> None:
    """A run that is stopped before its command has begun has lost nothing: 75."""
    setup = ("sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    machine.start("echo", "never", setup=setup)
    wait_for(machine, b"ready")
    result = machine.stop(LONG_GRACE)["result"]
    assert (result["step"], result["exit_code"], result["stopped"]) == ("setup", 75, True)
    assert b"never" not in machine.log()


def test_other_runs_and_other_processes_live_on(machine: Machine, bystander: subprocess.Popen[bytes]) -> None:
    """Stopping one run touches neither another run of the same login nor anything else."""
    machine.start("sleep", "1000")
    machine.start("sleep", "1000", run=OTHER)
    machine.stop(0.0)
    assert machine.status(OTHER)["state"] == "running"
    assert bystander.poll() is None


def test_a_run_without_its_supervisor_is_stopped_all_the_same(machine: Machine) -> None:
    """After the supervisor was killed its command lives on; stop finds and ends it and what it started."""
    machine.start("sh", "-c", STUBBORN, environment={"MINE": str(machine.home)})
    wait_for(machine, b"ready")
    os.kill(machine.recorded()["supervisor_pid"], signal.SIGKILL)
    until(lambda: machine.status()["state"] == "gone")
    assert processes_with(f"MINE={machine.home}") != []
    answer = machine.stop(0.2)
    assert (answer["state"], answer["survivors"]) == ("gone", [])
    assert processes_with(f"MINE={machine.home}") == []


@pytest.mark.parametrize("pid", [None, 0, 1, -1, "bystander", "not a number"])
def test_a_recorded_pid_that_is_not_ours_is_never_signalled(
    machine: Machine, bystander: subprocess.Popen[bytes], pid: object
) -> None:
    """Whatever the pid file says by now, a process that is not of the run is left alone."""
    machine.start("sleep", "1000")
    recorded = machine.recorded()
    os.kill(recorded["supervisor_pid"], signal.SIGKILL)
    number = bystander.pid if pid == "bystander" else pid
    forged = {**recorded, "pid": number, "supervisor_pid": number}
    (machine.attempt() / protocol.PID_FILE).write_text(json.dumps(forged))
    assert machine.stop(0.0)["state"] == "gone"
    assert bystander.poll() is None


FORKER = """
import os, time
print("ready", flush=True)
for _ in range(4000):  # every process lives for some milliseconds and leaves a child behind
    if os.fork():
        time.sleep(0.005)
        os._exit(0)
"""


def test_a_process_that_keeps_changing_its_pid_does_not_get_away(machine: Machine, tmp_path: Path) -> None:
    """A chain of forks, each the child of a dead parent, is caught by freezing before killing."""
    script = tmp_path / "forker.py"
    script.write_text(FORKER)
    mine = str(tmp_path)
    machine.start("sh", "-c", f"{sys.executable} {script} & sleep 1000", environment={"MINE": mine})
    wait_for(machine, b"ready")
    assert machine.stop(0.0)["state"] == "finished"
    assert processes_with(f"MINE={mine}") == []
