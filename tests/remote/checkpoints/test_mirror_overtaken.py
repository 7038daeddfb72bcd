# SPDX-License-Identifier: Apache-2.0
"""A machine that was thought lost and is not: its attempt ends, saves nothing more and is not tried again."""

from __future__ import annotations

import signal

import pytest

from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.errors import LeaseLost, Retry
from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import until

DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(1000)"
)


def test_an_attempt_that_is_overtaken_is_ended(
    run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """When it wants to save its next checkpoint it is stopped instead, and its last message reports a lost lease."""
    first = run.start()
    run.mirrored(first, 1)
    moved_run.start("sleep", "1000", attempt=2)
    until(lambda: "attempts/2.json" in bucket.objects)
    run.count_to(5)
    result = run.machine.result(first)
    assert (result["overtaken"], result["exit_code"], result["last_durable_step"]) == (True, 75, 1)
    assert result["checkpoint_durable"] is False
    assert run.mirror(first)["error"] == "attempt 2 has taken over"
    assert bucket.steps == [1]
    error = classify_exit(RunResult.from_json(result))
    assert isinstance(error, LeaseLost)
    assert error.retry is Retry.NEVER
    assert "a newer attempt of this run has written to its bucket" in str(error)


def test_a_script_that_saves_nothing_and_does_not_listen_is_ended_too(
    run: MirroredRun, moved_run: MirroredRun, bucket: CheckpointServer
) -> None:
    """The claims are looked at although there is nothing to save, and after the grace the script is killed."""
    first = run.start(run.machine.python, "-c", DEAF, grace_secs=0.2)
    until(lambda: b"ready" in run.machine.log(first))
    moved_run.start("sleep", "1000", attempt=2)
    until(lambda: "attempts/2.json" in bucket.objects)
    result = run.machine.result(first)
    assert (result["overtaken"], result["signal"]) == (True, signal.SIGKILL)


@pytest.mark.parametrize(("mine", "theirs"), [(1, 2), (2, 2)])
def test_an_attempt_that_was_overtaken_does_not_start(
    run: MirroredRun, moved_run: MirroredRun, mine: int, theirs: int
) -> None:
    """A start that arrives after a later one, or of the same number on another machine, runs nothing."""
    run.start("sleep", "1000", attempt=theirs)
    until(lambda: f"attempts/{theirs}.json" in run.bucket.objects)
    result = moved_run.machine.result(moved_run.start(attempt=mine))
    assert (result["exit_code"], result["step"], result["overtaken"]) == (75, "restore", True)
