# SPDX-License-Identifier: Apache-2.0
"""The contract between the pipeline and a training script, as a library: standard library only, any framework.

The pipeline passes environment variables that start with ``TRC_``; the script answers with files and its exit status.
Nothing here is compulsory: a shell script that reads ``$TRC_OUTPUT_DIR`` fulfils the contract as well.
Run by hand, without any ``TRC_`` variable, every value has a default and the same script works.

The prefix is ours on purpose: ``TPU_NAME``, ``TPU_WORKER_ID`` and the like mean something to TensorFlow, JAX and
libtpu, which read them themselves.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

EXIT_DONE = 0
EXIT_BAD_CONFIG = 64  # arguments or environment are wrong: never retried
EXIT_BAD_DATA = 65  # the data set is not what was promised: never retried
EXIT_RESUME_REFUSED = 66  # checkpoints exist, but none is whole, or they belong to another configuration
EXIT_NO_ACCELERATOR = 69  # the promised accelerator is missing or did not initialise
EXIT_DIVERGED = 70  # the loss is no longer finite
EXIT_STORAGE = 74  # the checkpoint directory cannot be listed or read: retried
EXIT_STOPPED = 75  # stopped on request; the checkpoint is durable
EXIT_STOPPED_LOSING_WORK = 76  # stopped on request; steps since the last checkpoint are lost

ACCELERATORS = ("tpu", "gpu", "cpu", "auto")


class ContractExit(Exception):
    """Ends the script with a status of the contract.

    :param code: exit status, one of the ``EXIT_`` constants.
    :param message: one or two sentences for the person who reads the log.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Contract:
    """The ``TRC_`` variables of this attempt; outside the pipeline defaults apply.

    :param run_id: name of the run, equal for all its attempts.
    :param attempt: which start of the run this is, from 1.
    :param worker_id: which virtual machine of the slice this is, from 0.
    :param worker_count: how many there are.
    :param accel: ``tpu``, ``gpu`` or ``cpu`` is a promise; ``auto`` takes what is there.
    :param output_dir: everything in it is copied to the artifact bucket.
    :param checkpoint_dir: outlives the attempt.
    :param resume: further place to look for checkpoints, or None.
    :param data_uri: where the data set is, or empty.
    :param artifacts_uri: where the output goes, for information only.
    :param baseline_uri: artifacts of the model that the result competes with, or empty.
    :param seed: None when the script may choose.
    :param stop_file: the run is asked to stop when this file exists.
    :param stop_grace_secs: seconds between the request to stop and the kill.
    :param deadline: Unix time at which the run is over, or None.
    """

    run_id: str
    attempt: int
    worker_id: int
    worker_count: int
    accel: str
    output_dir: Path
    checkpoint_dir: Path
    resume: Path | None
    data_uri: str
    artifacts_uri: str
    baseline_uri: str
    seed: int | None
    stop_file: Path | None
    stop_grace_secs: float
    deadline: float | None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Contract:
        """Read the ``TRC_`` variables; an empty one counts as absent.

        :raises ContractExit: with status 64 and every fault at once.
        """
        read = _Reader(environ)
        output = Path(read.text("OUTPUT_DIR", "output"))
        contract = cls(
            run_id=read.text("RUN_ID", "by-hand"),
            attempt=read.number("ATTEMPT", int, 1),
            worker_id=read.number("WORKER_ID", int, 0),
            worker_count=read.number("WORKER_COUNT", int, 1),
            accel=read.choice("ACCEL", ACCELERATORS, "auto"),
            output_dir=output,
            checkpoint_dir=Path(read.text("CHECKPOINT_DIR", str(output / "checkpoints"))),
            resume=read.path("RESUME"),
            data_uri=read.text("DATA_URI", ""),
            artifacts_uri=read.text("ARTIFACTS_URI", ""),
            baseline_uri=read.text("BASELINE_URI", ""),
            seed=read.number("SEED", int, None),
            stop_file=read.path("STOP_FILE"),
            stop_grace_secs=read.number("STOP_GRACE_SECS", float, 30.0),
            deadline=read.number("DEADLINE", float, None),
        )
        if read.faults:
            raise ContractExit(EXIT_BAD_CONFIG, "; ".join(read.faults))
        return contract


class _Reader:
    """Typed access to the ``TRC_`` variables that collects faults instead of stopping at the first."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.faults: list[str] = []

    def text(self, name: str, default: str) -> str:
        return self.environ.get("TRC_" + name, "").strip() or default

    def path(self, name: str) -> Path | None:
        text = self.text(name, "")
        return Path(text) if text else None

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(name, default).lower()
        if value not in allowed:
            self.faults.append(f"TRC_{name} is {value!r}; allowed: {', '.join(allowed)}")
        return value

    def number(self, name: str, kind: Callable[[str], Any], default: Any) -> Any:
        text = self.text(name, "")
        try:
            return kind(text) if text else default
        except ValueError:
            self.faults.append(f"TRC_{name} is {text!r}; it must be a number")
            return default


class StopRequest:
    """Whether, and by what, the script has been asked to stop.

    There are three channels, because a signal sent over SSH may never arrive: SIGTERM or SIGINT, the stop file, and
    the deadline, which counts as a request one grace period earlier so that the checkpoint is durable in time.

    :param contract: where the stop file and the deadline come from.
    :param now: Unix time, seconds.
    """

    def __init__(self, contract: Contract, now: Callable[[], float] = time.time) -> None:
        self._contract = contract
        self._now = now
        self._signal = ""

    def install(self) -> None:
        """Catch the signals from now on. Call it before the framework is imported: that takes seconds."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        # The run must survive the loss of the SSH connection that started it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name
        if number == signal.SIGINT:  # a second Ctrl-C at the keyboard ends the script at once
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def reason(self) -> str:
        """Why the script should stop; empty while it may continue."""
        contract = self._contract
        if self._signal:
            return self._signal
        if contract.stop_file is not None and contract.stop_file.exists():
            return f"stop file {contract.stop_file}"
        if contract.deadline is not None and self._now() >= contract.deadline - contract.stop_grace_secs:
            return "the deadline"
        return ""
