# SPDX-License-Identifier: Apache-2.0
"""A12: a run that hangs would hold its TPU for hours: it is stopped when nothing changes any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.errors import Budget, Retry, RunStalled
from supervisor.stall import StallDetector
from tests.remote.vm import Machine

HANG = "echo step 1; exec sleep 1000"
LIMIT = 100.0


class Watched:
    """A run and its watchdog, with a clock that a test sets.

    :param place: where its files are.
    """

    def __init__(self, place: Path) -> None:
        self.now = 0.0
        self.log, self.output, self.checkpoints = (place / name for name in ("log", "output", "checkpoints"))
        (self.output / "a" / "b").mkdir(parents=True)
        self.checkpoints.mkdir()
        self.stall = StallDetector(LIMIT, self.log, (self.output, self.checkpoints), lambda: self.now)
        self.stall.restart()

    def pass_by(self, seconds: float) -> bool:
        """Let time pass, looking as often as it wants; return whether it has struck."""
        end = self.now + seconds
        while self.now < end:
            struck = self.stall.check()
            if struck:
                return True
            self.now = min(end, self.now + max(self.stall.next_check(), 0.1))
        return self.stall.check()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """A run that does nothing."""
    return Watched(tmp_path)


def write_log(run: Watched) -> None:
    """Add a line to the log."""
    with run.log.open("a") as log:
        log.write("step\n")


def tell_progress(run: Watched) -> None:
    """Replace progress.json by content of the same size, as a script does at every step."""
    path = run.output / "progress.json"
    fresh = path.with_suffix(".new")
    fresh.write_text('{"step": 1}')
    before = path.stat().st_mtime_ns if path.exists() else 0
    os.utime(fresh, ns=(before + 1, before + 1))  # a file system's clock may be too coarse for a test
    fresh.replace(path)


def write_output(run: Watched) -> None:
    """Add a line to a file deep in the output."""
    with (run.output / "a" / "b" / "c").open("a") as file:
        file.write("x")


def save_checkpoint(run: Watched) -> None:
    """Add a file to the checkpoints."""
    (run.checkpoints / str(len(os.listdir(run.checkpoints)))).touch()


def test_a_run_that_hangs_is_stopped(machine: Machine) -> None:
    """It prints a line, then sleeps for ever: it is ended and reported as stalled, with what was looked at."""
    result = machine.run("sh", "-c", HANG, stall_secs=0.6, grace_secs=5.0)
    assert (result["stalled"], result["stopped"], result["deadline"]) == (True, False, False)
    assert result["stalled_secs"] >= 0.6
    error = classify_exit(RunResult.from_json(result))
    assert isinstance(error, RunStalled)
    assert (error.retry, error.budget) == (Retry.AT_ONCE, Budget.INFRASTRUCTURE)
    assert f"neither the log ({result['log_size']} bytes) nor progress.json nor any file" in str(error)


def test_without_a_limit_nothing_is_stalled(machine: Machine) -> None:
    """0 switches the watchdog off: a silent script runs to its end."""
    result = machine.run("sleep", "0.5", stall_secs=0.0)
    assert (result["exit_code"], result["stalled"], result["stalled_secs"]) == (0, False, 0.0)


def test_silence_is_borne_up_to_the_limit(watched: Watched) -> None:
    """It strikes once, at the limit, and says how long nothing had changed."""
    assert not watched.pass_by(0.95 * LIMIT)
    assert watched.pass_by(0.15 * LIMIT)
    assert LIMIT <= watched.stall.seconds <= 1.1 * LIMIT
    assert not watched.pass_by(2 * LIMIT)


@pytest.mark.parametrize("sign", [write_log, tell_progress, write_output, save_checkpoint])
def test_one_sign_of_life_is_enough(watched: Watched, sign: Callable[[Watched], None]) -> None:
    """A log that grows, progress that is reported, a file that is written: each alone counts as a change."""
    for _ in range(5):
        sign(watched)
        assert not watched.pass_by(0.8 * LIMIT)
    assert watched.pass_by(LIMIT)


def test_a_new_step_begins_anew(watched: Watched) -> None:
    """Each step of a job counts for itself: a long installation takes nothing from the script."""
    assert not watched.pass_by(0.9 * LIMIT)
    watched.stall.restart()
    assert not watched.pass_by(0.9 * LIMIT)


@pytest.mark.parametrize("exit_code", [75, 76, 143, 1])
def test_how_a_stalled_script_took_its_end_says_nothing(exit_code: int) -> None:
    """Whatever it exits with when it is asked to stop, the run has stalled; the safe step is reported."""
    error = classify_exit(RunResult(exit_code, stalled=True, stalled_secs=3600.0, last_durable_step=40))
    assert isinstance(error, RunStalled)
    assert "nothing changed for 3600 s" in str(error)
    assert "step 40 is safe" in str(error)
