# SPDX-License-Identifier: Apache-2.0
"""A shell script in which a part of a pipe fails has failed, however it was started and whatever follows the pipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.request.command import command
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.selection import Source
from tests.remote.vm import RUN, Machine, request

TRAIN = """#!/bin/bash
python3 -c 'raise SystemExit(3)' |& tee log.txt
date > stamp.txt
"""
IN_A_FUNCTION = """train() {
  false | cat
  echo "after $1"
}
train "$@"
true
"""
FINE = """false
yes | head -1 > first.txt
if false | cat; then echo never; fi
false | cat || echo handled
! false | cat
printf 'a' | grep -q b
echo "$0 $*"
"""


def run(machine: Machine, folder: Path, line: str, script: str, **fields: Any) -> dict[str, Any]:
    """Run a command line in a project with a shell script; return its result."""
    project = folder / "project"
    project.mkdir()
    (project / "train.sh").write_text(script)
    asked = command(line)
    assert asked is not None
    bundle = Bundle.build(Source(project, "", folder / "home", command=asked))
    job = JobSpec(RUN.run_name, RUN.attempt, bundle.program, **fields)
    assert machine.ask("start", data=request(job, bundle))["type"] == protocol.STARTED
    return machine.result()


@pytest.mark.parametrize(
    "line", ["bash train.sh", "./train.sh", "bash ./train.sh && echo done", "bash -c 'bash train.sh'"]
)
def test_a_pipe_that_loses_its_training_is_the_result(machine: Machine, tmp_path: Path, line: str) -> None:
    """What follows it still runs, and the log says why the script has failed."""
    result = run(machine, tmp_path, line, TRAIN)
    assert result["exit_code"] == 3
    assert b"a part of a pipe in" in machine.log()
    assert (machine.attempt() / "bundle" / "stamp.txt").exists()


def test_a_pipe_in_a_function_counts(machine: Machine, tmp_path: Path) -> None:
    """Functions and their arguments are as ever."""
    assert run(machine, tmp_path, "bash train.sh x", IN_A_FUNCTION)["exit_code"] == 1
    assert b"after x\n" in machine.log()


def test_what_a_script_expects_is_no_failure(machine: Machine, tmp_path: Path) -> None:
    """Conditions, a reader that has enough, a last part that fails, and commands that fail alone."""
    assert run(machine, tmp_path, "bash train.sh 1 2", FINE)["exit_code"] == 0
    assert machine.log() == b"handled\ntrain.sh 1 2\n"


def test_programs_of_the_system_are_left_alone(machine: Machine, tmp_path: Path) -> None:
    """They are not of the project, although they may be scripts."""
    tool = machine.home / "bin" / "tool"
    tool.write_text("#!/bin/bash\nfalse | cat\necho done\n")
    tool.chmod(0o755)
    assert run(machine, tmp_path, "bash train.sh", "tool\n")["exit_code"] == 0


def test_what_a_script_reads_from_elsewhere_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    """Activation scripts of the system have pipes of their own; those of the script itself still count."""
    (tmp_path / "activate").write_text("activate() { false | cat; }\nfalse | cat\nactivate\n")
    read = f". {tmp_path}/activate\nactivate\necho done\n"
    assert run(machine, tmp_path, "bash train.sh", read)["exit_code"] == 0
    assert machine.log() == b"done\n"


def test_a_file_that_the_login_names_is_read_first(machine: Machine, tmp_path: Path) -> None:
    """What it sets is there."""
    (tmp_path / "mine").write_text("GREETING=hello\n")
    result = run(
        machine, tmp_path, "bash train.sh", "echo $GREETING\n", environment={"BASH_ENV": str(tmp_path / "mine")}
    )
    assert (result["exit_code"], machine.log()) == (0, b"hello\n")
