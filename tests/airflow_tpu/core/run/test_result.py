# SPDX-License-Identifier: Apache-2.0
"""How a run ended and what that means, by the exit-code contract."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_tpu import protocol
from airflow_tpu.core import json_form
from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.errors import (
    AcceleratorMissing,
    AccessDenied,
    DeadlineExceeded,
    NothingProduced,
    RunFailed,
    RunInterrupted,
    RunStopped,
    StorageUnreachable,
    TPUError,
)

CONTRACT: list[tuple[dict[str, Any], type[TPUError] | None]] = [
    ({"exit_code": 0}, None),
    ({"exit_code": 0, "deadline": True}, None),
    ({"exit_code": 0, "missing_artifacts": ("model",)}, NothingProduced),
    ({"exit_code": 1}, RunFailed),
    ({"exit_code": 2}, RunFailed),
    ({"exit_code": 64}, RunFailed),
    ({"exit_code": 65}, RunFailed),
    ({"exit_code": 66}, RunFailed),
    ({"exit_code": 69}, AcceleratorMissing),
    ({"exit_code": 70}, RunFailed),
    ({"exit_code": 74}, StorageUnreachable),
    ({"exit_code": 74, "step": "restore"}, StorageUnreachable),
    ({"exit_code": 77, "step": "restore"}, AccessDenied),
    ({"exit_code": 77}, RunFailed),
    ({"exit_code": 75}, RunInterrupted),
    ({"exit_code": 76}, RunInterrupted),
    ({"exit_code": 75, "deadline": True}, DeadlineExceeded),
    ({"exit_code": 124}, RunFailed),
    ({"exit_code": 124, "stopped": True}, RunInterrupted),
    ({"exit_code": 124, "deadline": True}, DeadlineExceeded),
    ({"exit_code": 126}, RunFailed),
    ({"exit_code": 127}, RunFailed),
    ({"exit_code": 129}, RunInterrupted),
    ({"exit_code": 130}, RunInterrupted),
    ({"exit_code": 134}, RunFailed),
    ({"exit_code": 137}, RunFailed),
    ({"exit_code": 137, "stopped": True}, RunInterrupted),
    ({"exit_code": 139}, RunFailed),
    ({"exit_code": 143}, RunInterrupted),
    ({"exit_code": 254}, RunFailed),
    ({"exit_code": 255}, RunFailed),
    ({"exit_code": 255, "stopped": True}, RunInterrupted),
    ({"exit_code": 124, "step": "setup"}, RunFailed),
    ({"exit_code": 255, "step": "setup"}, RunFailed),
    ({"exit_code": 1, "stopped": True}, RunInterrupted),
    ({"exit_code": 75, "stopped": True, "stop_command": True}, RunStopped),
    ({"exit_code": None, "signal": 9, "stopped": True, "stop_command": True}, RunStopped),
    ({"exit_code": 75, "step": "setup", "stopped": True, "stop_command": True}, RunStopped),
    ({"exit_code": 0, "stopped": True, "stop_command": True}, None),
    ({"exit_code": 75, "stopped": True, "stop_command": True, "deadline": True}, DeadlineExceeded),
    ({"exit_code": 1, "step": "setup"}, RunFailed),
    ({"exit_code": 74, "step": "setup"}, StorageUnreachable),
    ({"exit_code": 1, "tpu_holder": "12 (python train.py)"}, AcceleratorMissing),
    ({"exit_code": None, "signal": signal.SIGABRT, "tpu_holder": "another process"}, AcceleratorMissing),
    ({"exit_code": 1, "tpu_holder": "own"}, RunFailed),
    ({"exit_code": None, "signal": signal.SIGTERM, "tpu_holder": "another process"}, RunInterrupted),
    ({"exit_code": 75, "step": "setup", "stopped": True}, RunInterrupted),
    ({"exit_code": 137, "step": "setup"}, RunFailed),
    ({"exit_code": 137, "step": "setup", "stopped": True}, RunInterrupted),
    ({"exit_code": None, "signal": signal.SIGKILL, "step": "setup"}, RunInterrupted),
    ({"exit_code": None, "signal": signal.SIGKILL}, RunInterrupted),
    ({"exit_code": None, "signal": signal.SIGTERM}, RunInterrupted),
    ({"exit_code": None, "signal": signal.SIGHUP}, RunInterrupted),
    ({"exit_code": None, "signal": signal.SIGINT}, RunInterrupted),
    ({"exit_code": None, "signal": signal.SIGTERM, "deadline": True}, DeadlineExceeded),
    ({"exit_code": None, "signal": signal.SIGSEGV}, RunFailed),
    ({"exit_code": None, "signal": signal.SIGABRT}, RunFailed),
    ({"exit_code": None, "signal": signal.SIGPIPE}, RunFailed),
    ({"exit_code": None, "signal": 64}, RunFailed),
]


@pytest.mark.parametrize(("fields", "leaf"), CONTRACT, ids=lambda value: str(value)[:40])
def test_the_contract(fields: dict[str, Any], leaf: type[TPUError] | None) -> None:
    """Each way to end has one meaning."""
    error = classify_exit(RunResult(**fields))
    assert (None if error is None else type(error)) is leaf


@pytest.mark.parametrize(
    ("fields", "killed"),
    [
        ({"exit_code": None, "signal": signal.SIGKILL}, True),
        ({"exit_code": None, "signal": signal.SIGKILL, "stopped": True}, False),
        ({"exit_code": None, "signal": signal.SIGTERM}, False),
        ({"exit_code": 143}, False),
    ],
)
def test_what_was_killed_unasked_is_told_from_what_was_asked_to_stop(fields: dict[str, Any], killed: bool) -> None:
    """The kernel asks nobody when memory is full; whoever shuts a machine down terminates first."""
    error = classify_exit(RunResult(**fields))
    assert isinstance(error, RunInterrupted)
    assert error.killed is killed


def test_a_failure_shows_exit_code_and_last_lines() -> None:
    """The person sees in the task's error what the script said last."""
    error = classify_exit(RunResult(exit_code=1), tail="ValueError: no such column")
    assert isinstance(error, RunFailed)
    assert error.exit_code == 1
    assert "exit code 1" in str(error)
    assert "ValueError: no such column" in str(error)


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"exit_code": 70}, "diverged"),
        ({"exit_code": 124}, "time limit of its own"),
        ({"exit_code": 127}, "line ends"),
        ({"exit_code": 137}, "out of memory"),
        ({"exit_code": 139}, "libtpu"),
        ({"exit_code": None, "signal": signal.SIGKILL}, "out of memory"),
        ({"exit_code": None, "signal": signal.SIGSEGV}, "SIGSEGV"),
        ({"exit_code": 0, "missing_artifacts": ("model", "metrics.json")}, "model, metrics.json"),
        ({"exit_code": 1, "step": "setup"}, "requirements"),
    ],
)
def test_a_hint_goes_with_it(fields: dict[str, Any], hint: str) -> None:
    """The message says what such an end usually means."""
    assert hint in str(classify_exit(RunResult(**fields)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"checkpoint_durable": True, "last_durable_step": 400}, "checkpoint of step 400 is safe. Once the cause"),
        ({"checkpoint_durable": True}, "last checkpoint is safe. Once the cause is mended, clear this task"),
        (
            {"checkpoint_durable": False, "last_durable_step": 300, "mirror_error": "503 try again"},
            "checkpoint of step 300 is safe. A newer one may not be there (503 try again).",
        ),
        (
            {"checkpoint_durable": False, "resumed_attempt": 1, "resumed_step": 200},
            "It saved none; the checkpoint of step 200 that it began with is safe.",
        ),
    ],
)
@pytest.mark.parametrize("end", [{"exit_code": 1}, {"exit_code": 70}, {"exit_code": None, "signal": 11}])
def test_failure_names_the_checkpoint_that_is_there(fields: dict[str, Any], words: str, end: dict[str, Any]) -> None:
    """A script that fails after its last checkpoint has not lost it: the error says which, and how to go on."""
    assert words in str(classify_exit(RunResult(**end, **fields)))
    assert "safe" not in str(classify_exit(RunResult(**end, checkpoint_durable=False)))


@pytest.mark.parametrize("more", [{"missing_artifacts": ("model",)}, {"deadline": True}, {"stalled": True}])
def test_other_ends_name_it_too(more: dict[str, Any]) -> None:
    """What a run has saved is named however it ended."""
    code = 0 if "missing_artifacts" in more else 75
    assert "checkpoint of step 7 is safe." in str(classify_exit(RunResult(code, last_durable_step=7, **more)))


def test_the_runners_result_is_read() -> None:
    """Every field that the protocol names is read or knowingly left, and later fields are ignored."""
    data = dict.fromkeys(protocol.RESULT_FIELDS)
    data |= {"exit_code": 0, "signal_name": "", "step": "run", "missing_artifacts": [], "new": 1}
    data |= {"stopped": True, "deadline": False, "started_at": 10.0, "ended_at": 25.5, "log_size": 7}
    result = RunResult.from_json(data)
    assert (result.exit_code, result.stopped, result.seconds, result.log_size) == (0, True, 15.5, 7)
    assert RunResult.from_json(json.loads(json.dumps(json_form.to_json(result)))) == result


@pytest.mark.parametrize("data", [{}, {"exit_code": None, "signal": None}, {"exit_code": 0, "signal": 9}])
def test_a_result_says_one_thing(data: dict[str, Any]) -> None:
    """Neither an exit code nor a signal, or both, is no result."""
    with pytest.raises(ValueError, match="exit code or a signal"):
        RunResult.from_json(data)


@pytest.mark.parametrize(
    ("code", "seconds_before", "error"),
    [(75, 30, DeadlineExceeded), (76, 5, DeadlineExceeded), (75, -2, DeadlineExceeded), (75, 600, RunInterrupted)],
)
def test_script_that_stops_for_its_deadline_is_not_tried_again(
    code: int, seconds_before: float, error: type[TPUError]
) -> None:
    """A script that watches the deadline stops a grace before it; long before it something else has stopped it."""
    deadline = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
    result = RunResult(code, ended_at=deadline.timestamp() - seconds_before)
    assert type(classify_exit(result.judged_by(deadline))) is error


def test_finished_run_is_not_overdue() -> None:
    """A run that is done a second before its deadline is done."""
    deadline = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
    assert classify_exit(RunResult(0, ended_at=deadline.timestamp() - 1).judged_by(deadline)) is None
