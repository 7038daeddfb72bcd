# SPDX-License-Identifier: Apache-2.0
"""Starting: once, from a whole request, with nothing in it that reaches outside its own directory."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.selection import Source
from tests.remote.vm import Machine, empty_tar, processes_with, request, until

JOB = JobSpec("run", 1, ("sh", "-c", "echo once; sleep 1000"))


def test_of_many_starts_one_gets_through(machine: Machine) -> None:
    """Ten racing starts of one attempt give one started, nine exists, and one process."""
    racers = [
        subprocess.Popen(
            machine.command("start"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=machine.environment()
        )
        for _ in range(10)
    ]
    data = request(JOB, Bundle((), empty_tar()))
    for racer in racers:
        assert racer.stdin
        racer.stdin.write(data[:-1])
        racer.stdin.flush()
    # Each now waits for one byte: they pass the last line of the upload within a moment of each other.
    for racer in racers:
        assert racer.stdin
        racer.stdin.write(data[-1:])
        racer.stdin.flush()
    answers = [protocol.decode(racer.communicate()[0])["type"] for racer in racers]
    assert sorted(answers) == [protocol.EXISTS] * 9 + [protocol.STARTED]
    machine.stop(0.0)
    assert machine.log() == b"once\n"


def test_another_attempt_of_the_run_is_another_start(machine: Machine) -> None:
    """Attempts have directories of their own and share the checkpoints of their run."""
    first = machine.start("sh", "-c", 'touch "$TRC_CHECKPOINT_DIR/c"')
    machine.result()
    second = machine.start("sh", "-c", 'ls "$TRC_CHECKPOINT_DIR"', run=RunRef("run", 2))
    machine.result(RunRef("run", 2))
    assert (first["type"], second["type"]) == (protocol.STARTED, protocol.STARTED)
    assert machine.log(RunRef("run", 2)) == b"c\n"


ONE, TWO = RunRef("run", 1), RunRef("run", 2)
# Saves its work when it is asked to end.
CAREFUL = "trap 'echo saved > $TRC_CHECKPOINT_DIR/c; exit 75' TERM; echo ready; while :; do sleep 0.05; done"


def kill_supervisor(machine: Machine, run: RunRef) -> None:
    """Leave the command of an attempt without its supervisor, as a machine without memory does."""
    os.kill(machine.recorded(run)["supervisor_pid"], signal.SIGKILL)
    until(lambda: machine.status(run)["state"] == "gone")


@pytest.mark.parametrize("supervised", [False, True], ids=["supervisor killed", "supervised"])
def test_the_old_command_has_ended_before_a_new_attempt_starts(oldest_machine: Machine, supervised: bool) -> None:
    """The command of an earlier attempt is asked to save, and the next one begins after its end, with its work."""
    machine = oldest_machine
    machine.start("sh", "-c", CAREFUL, run=ONE, environment={"MINE": str(machine.home)})
    until(lambda: b"ready" in machine.log(ONE))
    if not supervised:
        kill_supervisor(machine, ONE)
    machine.start("sh", "-c", 'cat "$TRC_CHECKPOINT_DIR/c"', run=TWO)
    assert processes_with(f"MINE={machine.home}") == []
    machine.result(TWO)
    assert machine.log(TWO) == b"airflow-tpu: stopped what attempt 1 had left running here\nsaved\n"


def test_an_old_command_that_does_not_listen_is_killed(oldest_machine: Machine) -> None:
    """After the grace of the new job the old command is killed with all that it has started."""
    machine = oldest_machine
    stubborn = "trap '' TERM; setsid sh -c 'while :; do sleep 0.1; done' & echo ready; while :; do sleep 0.1; done"
    machine.start("sh", "-c", stubborn, run=ONE, environment={"MINE": str(machine.home)})
    until(lambda: b"ready" in machine.log(ONE))
    kill_supervisor(machine, ONE)
    machine.start("true", run=TWO, grace_secs=0.2)
    assert processes_with(f"MINE={machine.home}") == []


def test_other_runs_are_not_stopped_by_a_start(machine: Machine) -> None:
    """Only earlier attempts of the same run are stopped."""
    machine.start("sh", "-c", "echo ready; sleep 1000", run=RunRef("other", 1))
    machine.start("true", run=TWO)
    machine.result(TWO)
    assert machine.status(RunRef("other", 1))["state"] == "running"


def test_a_second_start_stops_nothing(machine: Machine) -> None:
    """A start whose answer was lost finds the attempt running and leaves it alone."""
    machine.start("sh", "-c", "sleep 1000", run=TWO)
    assert machine.start("sh", "-c", "sleep 1000", run=TWO)["type"] == protocol.EXISTS
    assert machine.status(TWO)["state"] == "running"


def test_a_request_that_arrives_in_part_starts_nothing(machine: Machine) -> None:
    """A connection cut during the upload leaves nothing behind, so that the next start is the first."""
    whole = request(JOB, Bundle((), empty_tar()))
    answer = machine.ask("start", data=whole[:-1])
    assert (answer["type"], answer["reason"]) == (protocol.ERROR, "damaged")
    assert not machine.attempt().exists()


@pytest.mark.parametrize("name", ["../escape", "/tmp/escape", "a/../../escape"])
def test_a_bundle_cannot_write_outside(machine: Machine, name: str) -> None:
    """A member whose path leads out of the bundle is refused, and nothing is started."""
    member = tarfile.TarInfo(name)
    answer = machine.ask("start", data=request(JOB, Bundle((), archive_of(member))))
    assert (answer["reason"], machine.attempt().exists()) == ("bad-bundle", False)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_bundle_holds_files_only(machine: Machine, kind: bytes) -> None:
    """Links and devices in a bundle are refused."""
    member = tarfile.TarInfo("member")
    member.type, member.linkname = kind, "/etc/passwd"
    answer = machine.ask("start", data=request(JOB, Bundle((), archive_of(member))))
    assert answer["reason"] == "bad-bundle"


def archive_of(member: tarfile.TarInfo) -> bytes:
    """An archive with one member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(member)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["../up", "", "a/b", "UPPER", "-x", "x" * 64])
def test_a_name_cannot_leave_the_directory_of_runs(machine: Machine, name: str) -> None:
    """The runner does not rely on its caller: a name that is no plain directory name is refused."""
    data = empty_tar()
    described = {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    job = {**json_form.to_json(JOB), "run_name": name}
    answer = machine.ask("start", data=protocol.encode(protocol.START, job=job, bundle=described) + data)
    assert answer["reason"] == "bad-job"
    assert sorted(path.name for path in machine.home.iterdir()) == ["bin", "runner"]


def test_a_message_of_another_version_is_refused(machine: Machine) -> None:
    """A client that speaks another protocol gets an error that names both versions."""
    answer = machine.ask("start", data=b'{"v":99,"type":"start"}\n')
    assert answer["type"] == protocol.ERROR
    assert answer["message"].startswith("protocol version 99, this end speaks 1")


@pytest.mark.parametrize("name", ["train model.py", "학습/train.py", "-rf.py", "it's.py", "a$(reboot).sh"])
def test_odd_script_paths_and_arguments_arrive_as_they_are(machine: Machine, tmp_path: Path, name: str) -> None:
    """A script of any name is run, with its arguments as they were given."""
    script = tmp_path / "scripts" / name
    script.parent.mkdir(parents=True)
    python = name.endswith(".py")
    script.write_text("import sys; print(sys.argv[1:])" if python else 'printf "%s\\n" "$@"')
    arguments = ("--name=a b", "--x=$(reboot)", '--json={"a":1}', "", "new\nline", "{{ ds }}", "100%", "~")
    bundle = Bundle.build(Source(tmp_path / "scripts", name, tmp_path / "home"))
    job = JobSpec("run", 1, (*bundle.program, *arguments), working_dir=bundle.working_dir)
    machine.ask("start", data=request(job, bundle))
    assert machine.result()["exit_code"] == 0
    expected = f"{list(arguments)}\n" if python else "".join(f"{argument}\n" for argument in arguments)
    assert machine.log().decode() == expected
