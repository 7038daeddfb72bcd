# SPDX-License-Identifier: Apache-2.0
"""What scripts/up starts and scripts/down ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import processes

# A process that leaves its parent's session and says so: the kind that a search by parent or by group would miss.
RUNAWAY = """
import subprocess, sys
child = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
process = subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
process.stdout.readline()
print("runaway is up", flush=True)
process.wait()
"""
BYSTANDER = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """The state file of a stack that is ended whatever the test does."""
    file = tmp_path / "stack.json"
    yield file
    if file.exists():
        processes.stop(file)


def start_runaway(state: Path) -> None:
    """Start the runaway and wait until its child is there, by reading what it says."""
    pipe = state.parent / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    processes.start(state, "runaway", str(pipe), sys.executable, "-c", RUNAWAY)
    with open(reader, encoding="utf-8") as lines:
        assert lines.readline() == "runaway is up\n"


def test_stop_ends_a_process_that_left_its_parents_session(state: Path) -> None:
    """Ending a stack ends the children of what was started, even in sessions of their own."""
    start_runaway(state)
    mark = json.loads(state.read_text(encoding="utf-8"))["mark"]
    assert len(processes.marked(mark)) == 2
    assert processes.stop(state) == 0
    assert processes.marked(mark) == []
    assert not state.exists()


def test_stop_leaves_everything_else_alone(state: Path) -> None:
    """A process that was not started here survives, even if a recycled process id makes it look like ours."""
    command = [sys.executable, "-c", BYSTANDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bystander:
        assert bystander.stdout is not None
        bystander.stdout.readline()
        state.write_text(json.dumps({"mark": "m", "processes": {"api-server": bystander.pid}}), encoding="utf-8")
        assert processes.running(state) == 1
        assert processes.stop(state) == 0
        assert bystander.poll() is None


def test_running_tells_a_living_stack_from_a_dead_one(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While all processes run the answer is 0; once one has ended it is named."""
    start_runaway(state)
    assert processes.running(state) == 0
    mark = json.loads(state.read_text(encoding="utf-8"))["mark"]
    for process in processes.marked(mark):
        process.kill()
        process.wait()
    assert processes.running(state) == 1
    assert "runaway" in capsys.readouterr().out
