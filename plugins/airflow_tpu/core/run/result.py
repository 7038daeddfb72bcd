# SPDX-License-Identifier: Apache-2.0
"""How a run ended, and what that means for the next try."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_tpu import protocol
from airflow_tpu.core import json_form
from airflow_tpu.errors import (
    AcceleratorMissing,
    AccessDenied,
    DeadlineExceeded,
    LeaseLost,
    NothingProduced,
    RunFailed,
    RunInterrupted,
    RunStalled,
    RunStopped,
    StorageUnreachable,
    TPUError,
)

_SAFE = "stopped on request with its checkpoint safe; the next attempt resumes there"
_UNSAFE = "stopped on request before its last work was safe; the next attempt resumes from an earlier checkpoint"
_STOPPED = frozenset({protocol.EXIT_STOPPED, protocol.EXIT_STOPPED_LOSING_WORK})
_MEANINGS = {
    protocol.EXIT_BAD_CONFIG: "the script refused its configuration",
    protocol.EXIT_BAD_DATA: "the data are not the expected ones",
    protocol.EXIT_RESUME_REFUSED: (
        "the script refused to resume: the checkpoints are damaged or belong to another configuration"
    ),
    protocol.EXIT_DIVERGED: "training diverged",
    124: "the script ended by a time limit of its own (timeout ends with this code)",
    protocol.EXIT_NOT_EXECUTABLE: "the script is not executable",
    protocol.EXIT_NOT_FOUND: (
        "the command was not found (a missing interpreter, or Windows line ends in the script's first line)"
    ),
    128 + signal.SIGKILL: "something that the script had started was killed: the worker may be out of memory",
}
_NOT_RESUMED = (
    "the run was not resumed: other code has saved its checkpoints and on_changed_code is refuse, or none of them can "
    "be used; its log says which"
)
_EARLY_SECONDS = 2 * protocol.GRACE_SECS  # what a script may take to save before the deadline
_STORAGE = frozenset(
    {
        (protocol.RUN_STEP, protocol.EXIT_STORAGE),
        (protocol.RESTORE_STEP, protocol.EXIT_STORAGE),
        (protocol.RESTORE_STEP, protocol.EXIT_NO_ACCESS),
    }
)
_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
# Not SIGKILL: a machine that shuts down terminates first, and then the runner knows that the run was stopped.
_OUTSIDE_CODES = {128 + number: number for number in _OUTSIDE - {signal.SIGKILL}}
_CRASH = "the process crashed; on a TPU that is often a libtpu that does not fit the installed TensorFlow"


@dataclass(frozen=True)
class RunResult:
    """What the runner on the worker recorded of one attempt.

    :param exit_code: exit status, None if a signal ended it.
    :param signal: number of the signal, None if it exited.
    :param step: ``restore`` (checkpoints from the bucket), ``setup`` (installing requirements), ``smoke`` (framework,
        device and bucket) or ``run``.
    :param stopped: a person asked it to stop.
    :param stop_command: it was the runner's stop command that asked, which is what a person does.
    :param deadline: it was stopped because its deadline had passed.
    :param overtaken: it was stopped because a newer attempt has taken the run over.
    :param stalled: it was stopped because nothing of it changed any more.
    :param stalled_secs: for so many seconds.
    :param missing_artifacts: declared artifacts that are not there.
    :param leftovers_killed: processes it left behind, ended by the runner.
    :param tpu_holder: what held the TPU so that the script did not get it: a process that is not of the run, in words,
        or :data:`airflow_tpu.protocol.OWN_PROCESS`; empty if libtpu said nothing of the kind.
    :param log_size: bytes of its log.
    :param started_at: Unix seconds.
    :param ended_at: Unix seconds.
    :param checkpoint_durable: the newest checkpoint is in the bucket; None if none was to be mirrored.
    :param last_durable_step: training steps of the newest checkpoint there, None if there is none or it is unknown.
    :param mirror_error: why the last try to mirror one failed, empty if it did not.
    :param resumed_step: training steps of the checkpoint from the bucket that it began with, None as above.
    :param resumed_attempt: which attempt had saved that one.
    :param resumed_saved_at: when, in Unix seconds.
    """

    exit_code: int | None
    signal: int | None = None
    step: str = "run"
    stopped: bool = False
    stop_command: bool = False
    deadline: bool = False
    overtaken: bool = False
    stalled: bool = False
    stalled_secs: float = 0.0
    missing_artifacts: tuple[str, ...] = ()
    leftovers_killed: int = 0
    tpu_holder: str = ""
    log_size: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0
    checkpoint_durable: bool | None = None
    last_durable_step: int | None = None
    mirror_error: str = ""
    resumed_step: int | None = None
    resumed_attempt: int | None = None
    resumed_saved_at: float | None = None

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return max(0.0, self.ended_at - self.started_at)

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.signal is None:
            return f"exit code {self.exit_code}"
        return f"signal {self.signal} ({_signal_name(self.signal)})"

    @property
    def ended(self) -> datetime:
        """When it ended, by the worker's clock."""
        return datetime.fromtimestamp(self.ended_at, tz=UTC)

    def judged_by(self, deadline: datetime) -> RunResult:
        """The same result, known to be the deadline's doing if the script stopped itself for it.

        A script that watches ``TRC_DEADLINE`` ends by itself, a grace before the runner would stop it.

        :param deadline: aware instant at which everything of the run ends.
        """
        stopped_itself = self.exit_code in _STOPPED and self.ended_at >= deadline.timestamp() - _EARLY_SECONDS
        return replace(self, deadline=True) if stopped_itself else self

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunResult:
        """Read the runner's result; fields of later versions are ignored.

        :raises ValueError: if it says neither an exit code nor a signal, or both.
        """
        if (data.get("exit_code") is None) == (data.get("signal") is None):
            raise ValueError(f"a result has an exit code or a signal: {dict(data)}")
        known = {name: data[name] for name in cls.__dataclass_fields__ if data.get(name) is not None}
        return json_form.from_json(cls, {"exit_code": None, **known})


def resumption(result: RunResult, tpu_ends: Iterable[datetime]) -> str:
    """Where a run has gone on, and what had been lost, in words; empty if it began anew or on the same machine.

    :param result: what the runner recorded.
    :param tpu_ends: when the run's TPUs were taken away; the first end after a checkpoint is that of its TPU.
    """
    if result.resumed_attempt is None:
        return ""
    where = "a checkpoint" if result.resumed_step is None else f"step {result.resumed_step}"
    saved = result.resumed_saved_at
    ends = [] if saved is None else [end.timestamp() - saved for end in tpu_ends if end.timestamp() >= saved]
    lost = f"lost {min(ends):.0f} s of work" if ends else "had saved it"
    return f"resumed from {where} (attempt {result.resumed_attempt} {lost})"


def classify_exit(result: RunResult, tail: str = "") -> TPUError | None:
    """The error a result stands for, by the exit-code contract of the training script; None if it is done.

    Whether a TPU that was being taken away is behind a signal, only the TPU's state can tell: ask it next.

    :param result: what the runner recorded.
    :param tail: last lines of the log, shown when the user's code failed.
    """
    if result.exit_code == 0 and not result.overtaken:
        return _of_success(result)
    if result.overtaken or result.deadline or result.stalled:
        return _of_supervisor(result)
    if result.stop_command:
        return RunStopped(_of_command(result))
    if (result.step, result.exit_code) == (protocol.RESTORE_STEP, protocol.EXIT_RESUME_REFUSED):
        return _failed(result, _NOT_RESUMED, tail)
    if result.step in _BEFORE and _ended_by_itself(result):
        return _BEFORE[result.step](result, tail)
    if result.exit_code in _STOPPED:
        return RunInterrupted(f"the run {_of_stop(result)} ({result.how})")
    if result.tpu_holder and not result.stopped and _outside_signal(result) is None:
        return _of_holder(result, tail)
    if result.exit_code == 69:
        return AcceleratorMissing(
            f"the promised TPU did not initialise ({result.how}); the run did not fall back to CPU"
        )
    if (result.step, result.exit_code) in _STORAGE:
        return _of_storage(result)
    return _of_signal_or_code(result, tail)


def _of_supervisor(result: RunResult) -> TPUError:
    """It had reasons of its own to stop the script, and how that took it says nothing."""
    if result.overtaken:
        return LeaseLost(
            f"a newer attempt of this run has written to its bucket, so this one was ended ({result.how}): the newer "
            "one continues, and this one is not tried again"
        )
    if result.deadline:
        return DeadlineExceeded(
            f"the run's deadline passed and it was stopped ({result.how}); raise deadline_hours.{_saved(result)}"
        )
    return RunStalled(_of_stall(result))


def _of_stall(result: RunResult) -> str:
    return (
        f"nothing changed for {result.stalled_secs:.0f} s, neither the log ({result.log_size} bytes) nor progress.json "
        f"nor any file of the output or the checkpoints, so the run was stopped ({result.how}); a new attempt resumes. "
        f"A script that is silent for longer needs a higher stall_minutes.{_saved(result)}"
    )


def _of_command(result: RunResult) -> str:
    return (
        f"a person stopped the run with the runner's stop command ({result.how}), so it is not tried again."
        f"{_saved(result)} To go on, clear this task: it resumes from the newest checkpoint"
    )


def _of_storage(result: RunResult) -> TPUError:
    """What kept the run from its storage; before it started, also a right that no other try brings."""
    if result.step != "restore":
        return StorageUnreachable(f"the script could not reach its storage ({result.how})")
    if result.exit_code == protocol.EXIT_NO_ACCESS:
        return AccessDenied(
            "the TPU VM's service account may not use the run's checkpoints in the bucket, so the run was not started: "
            "give it roles/storage.objectAdmin on the bucket. Its log has the bucket's answer"
        )
    return StorageUnreachable(
        f"the run's checkpoints in the bucket could not be read, so it was not started ({result.how}): "
        "starting from zero would throw its work away. Its log says why; the next try reads them again"
    )


def _of_setup(result: RunResult, tail: str) -> TPUError:
    if result.exit_code != protocol.EXIT_STORAGE:
        return _failed(result, "the requirements could not be installed", tail)
    return StorageUnreachable(
        f"the package index did not answer while the requirements were installed ({result.how}); the next try asks "
        "again from the same TPU. With internal_ips the subnetwork needs Cloud NAT, or name an index inside the VPC in "
        "PIP_INDEX_URL"
    )


def _of_smoke(result: RunResult, tail: str) -> TPUError:
    """What was tried before the script did not work; the last line of the log names the cause."""
    if result.exit_code == protocol.EXIT_NO_ACCELERATOR:
        return AcceleratorMissing(
            "the framework found no TPU that it can use, so the script was not started. Its log says why"
        )
    if result.exit_code == protocol.EXIT_NO_ACCESS:
        return AccessDenied(
            "the TPU VM's service account lacks a right in the bucket of the artifacts, so the script was not started: "
            "give it roles/storage.objectAdmin on the bucket. Its log has the bucket's answer"
        )
    if result.exit_code == protocol.EXIT_STORAGE:
        return StorageUnreachable(f"the bucket of the artifacts did not answer before the script ({result.how})")
    return _failed(result, "the framework does not work on this TPU VM, so the script was not started", tail)


def _of_holder(result: RunResult, tail: str) -> TPUError:
    """One process holds the TPU: a stranger's goes with the machine, one of the script's own comes again."""
    if result.tpu_holder == protocol.OWN_PROCESS:
        own = "another process of the script had opened the TPU already, and only one can: open it in one process alone"
        return _failed(result, own, tail)
    return AcceleratorMissing(
        f"the TPU is held by {result.tpu_holder}, which is not of this run ({result.how}): a person works on this TPU "
        "VM, or an earlier process has left libtpu's lock behind. The next try gets another TPU"
    )


def _of_stop(result: RunResult) -> str:
    """The script's word is good for the disk; whether that disk's content has left the machine, the runner knows."""
    if result.exit_code == 75 and (result.checkpoint_durable is not False or result.step != "run"):
        return _SAFE
    because = f" ({result.mirror_error})" if result.mirror_error else ""
    return _UNSAFE + because


def _ended_by_itself(result: RunResult) -> bool:
    return not result.stopped and result.signal is None and result.exit_code not in _OUTSIDE_CODES


def _of_success(result: RunResult) -> TPUError | None:
    if not result.missing_artifacts:
        return None
    missing = ", ".join(result.missing_artifacts)
    return NothingProduced(f"the script ended well, but did not write what it declared: {missing}.{_saved(result)}")


def _of_signal_or_code(result: RunResult, tail: str) -> TPUError:
    number = _outside_signal(result)
    if result.stopped or number is not None:
        hint = "; without a preemption, the worker may be out of memory" if number == signal.SIGKILL else ""
        error = RunInterrupted(f"the run was ended from outside ({result.how}){hint}")
        error.killed = number == signal.SIGKILL and not result.stopped
        return error
    if result.signal is not None or result.exit_code in (128 + signal.SIGABRT, 128 + signal.SIGSEGV):
        return _failed(result, _CRASH, tail)
    return _failed(result, _MEANINGS.get(result.exit_code or 0, "the script failed"), tail)


def _outside_signal(result: RunResult) -> int | None:
    """The signal with which a machine, its kernel or a person ends a run, None if another or none has ended it."""
    number = result.signal or _OUTSIDE_CODES.get(result.exit_code or 0)
    return number if number in _OUTSIDE else None


def _failed(result: RunResult, meaning: str, tail: str) -> RunFailed:
    saved = _saved(result)
    again = " Once the cause is mended, clear this task: it resumes there." if saved else ""
    return RunFailed(f"{meaning} ({result.how}); what it wrote is kept.{saved}{again}", result.exit_code, tail)


def _saved(result: RunResult) -> str:
    """Which checkpoint is in the bucket, as a sentence; empty if the run has none there."""
    doubt = f" A newer one may not be there ({result.mirror_error})." if result.mirror_error else ""
    if result.last_durable_step is not None:
        return f" Its checkpoint of step {result.last_durable_step} is safe.{doubt}"
    if result.checkpoint_durable:
        return f" Its last checkpoint is safe.{doubt}"
    if result.resumed_attempt is not None:
        step = "" if result.resumed_step is None else f" of step {result.resumed_step}"
        return f" It saved none; the checkpoint{step} that it began with is safe.{doubt}"
    return ""


_BEFORE: Mapping[str, Callable[[RunResult, str], TPUError]] = {
    protocol.SETUP_STEP: _of_setup,
    protocol.SMOKE_STEP: _of_smoke,
}
"""What it means that a step before the script has failed by itself."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
