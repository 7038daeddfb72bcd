# SPDX-License-Identifier: Apache-2.0
"""How a command ended is recorded exactly, whatever it did to its process, its disk and its children."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.source.bundle import Bundle
from tests.remote.vm import LONG_GRACE, Machine, empty_tar, processes_with, request


@pytest.mark.parametrize("code", [0, 1, 126, 127, 137, 143, 255])
def test_an_exit_status_is_recorded_as_such(machine: Machine, code: int) -> None:
    """Every exit status stays an exit status: 137 chosen by the script is no proof of a kill."""
    result = machine.run("sh", "-c", f"exit {code}")
    assert (result["exit_code"], result["signal"]) == (code, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_recorded_as_such(machine: Machine, number: signal.Signals) -> None:
    """A command that a signal ended has no exit status but the signal's number and name."""
    result = machine.run("sh", "-c", f"kill -{number.value} $$")
    assert (result["exit_code"], result["signal"], result["signal_name"]) == (None, number, number.name)


@pytest.mark.parametrize(
    ("content", "mode", "code"),
    [
        (None, 0, 127),
        ("#!/bin/sh\n", 0o600, 126),
        ("#!/bin/sh\r\nexit 0\r\n", 0o700, 127),
        ("", 0o700, 126),
    ],
    ids=["missing", "not executable", "line ends of Windows", "empty"],
)
def test_what_cannot_be_started_is_told_like_a_shell_would(
    machine: Machine, tmp_path: Path, content: str | None, mode: int, code: int
) -> None:
    """A command that is missing ends with 127, one that cannot be executed with 126, and the log says why."""
    script = tmp_path / "script"
    if content is not None:
        script.write_bytes(content.encode())
        script.chmod(mode)
    result = machine.run(str(script))
    assert result["exit_code"] == code
    assert machine.log().startswith(b"airflow-tpu: cannot start")


def test_what_the_command_leaves_running_is_ended_and_counted(machine: Machine) -> None:
    """A child in a session of its own, with an emptied environment, does not outlive the result."""
    result = machine.run("sh", "-c", f"(setsid env -i LEFT={machine.home} sleep 1000 &) ; sleep 0.2")
    assert (result["exit_code"], result["leftovers_killed"]) == (0, 1)
    assert processes_with(f"LEFT={machine.home}") == []


def test_the_log_holds_both_streams_in_order_and_its_size(machine: Machine) -> None:
    """Standard output and standard error share one log, and standard input is empty."""
    result = machine.run("sh", "-c", "cat; echo out; echo err >&2; printf 'no newline'")
    assert machine.log() == b"out\nerr\nno newline"
    assert result["log_size"] == len(machine.log())


def test_a_full_disk_does_not_keep_the_result_from_being_recorded(machine: Machine, tmp_path: Path) -> None:
    """With the log filling the disk to the last byte, or to the limit of a file, the exit status is still there."""
    (machine.home / protocol.ROOT_DIR).mkdir()
    script = tmp_path / "script.sh"
    script.write_text(
        f"""
        {_small_disk(machine.home / protocol.ROOT_DIR)} || exit 9
        {machine.python} "$HOME/runner/runner.py" start > /dev/null || exit 8
        until [ -s {machine.attempt()}/exit.json ]; do sleep 0.05; done
        cat {machine.attempt()}/exit.json
        """
    )
    job = JobSpec("run", 1, ("sh", "-c", "yes; exit 7"))
    done = subprocess.run(
        [*_own_mounts(), "sh", str(script)],
        input=request(job, Bundle((), empty_tar())),
        env=machine.environment(),
        capture_output=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result["exit_code"] == 7
    assert result["log_size"] > 500_000


def _own_mounts() -> list[str]:
    """A mount namespace of its own, if this machine lets us have one."""
    command = ["unshare", "--map-root-user", "--mount"]
    try:
        allowed = subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return command if allowed.returncode == 0 else []


def _small_disk(path: Path) -> str:
    return f"mount -t tmpfs -o size=1m none {path}" if _own_mounts() else "ulimit -f 1024"


def test_the_environment_follows_the_contract(machine: Machine) -> None:
    """The script finds the login's variables, the caller's, and the directories of its own attempt."""
    given = {"TRC_ACCEL": "tpu", "TRC_OUTPUT_DIR": "/moved_run", "TRC_RUN_ID": "other", "MINE": "a b"}
    machine.run("env", "-0", environment=given, grace_secs=5.0, deadline=4e9 + 0.5)
    found = dict(line.split("=", 1) for line in machine.log().decode().split("\0") if line)
    attempt = machine.attempt()
    assert found["TRC_OUTPUT_DIR"] == str(attempt / "output")
    assert found["TRC_CHECKPOINT_DIR"] == str(attempt.parent / "checkpoints")
    assert found["TRC_STOP_FILE"] == str(attempt / "stop")
    assert {name: found[name] for name in ("TRC_RUN_ID", "TRC_ATTEMPT", "TRC_RESUME", "TRC_ACCEL", "MINE")} == {
        "TRC_RUN_ID": "run", "TRC_ATTEMPT": "1", "TRC_RESUME": "", "TRC_ACCEL": "tpu", "MINE": "a b"
    }  # fmt: skip
    assert (float(found["TRC_STOP_GRACE_SECS"]), found["TRC_DEADLINE"]) == (5.0, "4000000000")


def test_names_of_the_contract_are_expanded_in_arguments(machine: Machine) -> None:
    """``$TRC_NAME`` and ``${TRC_NAME}`` become their values, those that only the VM knows too; no other name does."""
    words = ["--out=$TRC_OUTPUT_DIR/x", "${TRC_DATA_URI}/train", "$TRC_UNKNOWN", "$HOME", "$(id)", "$$TRC_RUN_ID"]
    machine.run("printf", "%s\n", *words, environment={"TRC_DATA_URI": "gs://bucket/$TRC_RUN_ID"})
    found = machine.log().decode().splitlines()
    output = str(machine.attempt() / "output")
    assert found == [f"--out={output}/x", "gs://bucket/$TRC_RUN_ID/train", "$TRC_UNKNOWN", "$HOME", "$(id)", "$run"]


def test_names_of_the_contract_are_expanded_in_variables(machine: Machine) -> None:
    """As in a shell, where ``PATH=/x:$PATH`` adds to what the login has; other names stay as they are typed."""
    given = {"OUT": "$TRC_OUTPUT_DIR/x", "PATH": "/mine:${PATH}", "KEPT": "$HOME", "TRC_DATA_URI": "gs://b"}
    machine.run("sh", "-c", 'printf "%s\n" "$OUT" "$PATH" "$KEPT"', environment=given)
    out, path, kept = machine.log().decode().splitlines()
    assert (out, kept) == (f"{machine.attempt() / 'output'}/x", "$HOME")
    assert path == f"/mine:{machine.environment()['PATH']}"


def test_requirements_are_first_on_the_path_of_every_kind_of_command(machine: Machine) -> None:
    """The environment that a setup has made is used by a shell script's python3 too, and by what that starts."""
    python = "../../venv/bin/python3"
    made = f'mkdir -p ../../venv/bin && printf "#!/bin/sh\\necho ours\\n" > {python} && chmod +x {python}'
    machine.run("sh", "-c", "python3; sh -c python3; printf '%s\n' \"$VIRTUAL_ENV\"", setup=("sh", "-c", made))
    venv = machine.attempt().parent / "venv"
    assert machine.log().decode().splitlines() == ["ours", "ours", str(venv)]


def test_the_top_of_the_bundle_can_be_imported_from(machine: Machine) -> None:
    """The library at its top is found from a project's folder, before what the login's PYTHONPATH names."""
    machine.run("sh", "-c", 'printf "%s\n" "$PYTHONPATH"', environment={"PYTHONPATH": "/mine"})
    assert machine.log().decode() == f"{machine.attempt() / 'bundle'}:/mine\n"


def test_the_environment_is_not_for_everybody(machine: Machine) -> None:
    """What is in the environment stands in no command line and only in files of the owner."""
    machine.start("sleep", "1000", environment={"MINE": "hush"})
    recorded = machine.recorded()
    for pid in (recorded["pid"], recorded["supervisor_pid"]):
        assert b"hush" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    holding = [path for path in machine.attempt().rglob("*") if path.is_file() and b"hush" in path.read_bytes()]
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in holding] == [("job.json", 0o600)]


def test_a_failed_setup_is_the_result(machine: Machine) -> None:
    """If the set-up step fails the command is not run, and the result says in which step it was."""
    result = machine.run("echo", "never", setup=("sh", "-c", "echo setting up; exit 3"))
    assert (result["step"], result["exit_code"]) == ("setup", 3)
    assert machine.log() == b"setting up\n"


def test_declared_artifacts_that_are_missing_are_named(machine: Machine) -> None:
    """Each pattern that names no file in the output or the working directory is in the result; a folder is no file."""
    script = 'mkdir -p "$TRC_OUTPUT_DIR/model" runs/1/empty; touch "$TRC_OUTPUT_DIR/model/w.bin" runs/1/log'
    there = ("model/*.bin", "runs/**", "runs", "**/log", "r?ns/*/log")
    missing = ("metrics.json", "ckpt/", "*.bin", "runs/1/empty/**", "run")
    result = machine.run("sh", "-c", script, artifacts=there + missing)
    assert result["missing_artifacts"] == list(missing)


def test_the_deadline_stops_the_run(machine: Machine) -> None:
    """A run whose deadline has passed is stopped by its own machine, with the usual grace, and the result says so."""
    result = machine.run(
        "sh", "-c", "trap 'exit 75' TERM; while :; do sleep 0.05; done", deadline=1.0, grace_secs=LONG_GRACE
    )
    assert (result["deadline"], result["stopped"]) == (True, False)
    # The signal may come before the trap is set.
    assert result["exit_code"] == 75 or result["signal"] == signal.SIGTERM
