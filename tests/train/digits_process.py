"""Runs digits.py as a process of its own, attempt after attempt, as the TPU VM does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "include" / "train"
STEPS = 300
# Small batches: the process, not the arithmetic, is under test.
SHORT = ("--steps", str(STEPS), "--batch-size", "16", "--eval-every", "50")
PATIENCE = 120.0  # seconds until a process that should have got somewhere counts as hung


def clean_environment() -> dict[str, str]:
    """The environment of the tests without anything that a training script or TensorFlow's TPU client reads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TRC_", "TPU_"))}


class DigitsRun:
    """One run of digits.py: a checkpoint directory that stays, and an output directory.

    :param directory: where everything lies.
    :param arguments: further arguments, after those that make the run short.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.output = directory / "output"
        self.checkpoints = directory / "checkpoints"
        self.arguments = [*SHORT, *arguments]
        self.attempts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the next attempt."""
        self.attempts += 1
        (self.output / "progress.json").unlink(missing_ok=True)  # that of the attempt before would be read
        contract = {
            "TRC_RUN_ID": "test-run",
            "TRC_ATTEMPT": str(self.attempts),
            "TRC_ACCEL": "cpu",
            "TRC_OUTPUT_DIR": str(self.output),
            "TRC_CHECKPOINT_DIR": str(self.checkpoints),
            "TRC_STOP_FILE": str(self.directory / "stop"),
        }
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPTS / "digits.py"), *self.arguments],
                env={**clean_environment(), **contract, **(environment or {})},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the run has not been started"
        return self._process

    def end(self) -> int:
        """Wait until the attempt ends by itself; its exit status."""
        return self.process.wait(PATIENCE)

    def attempt(self, environment: Mapping[str, str] | None = None) -> int:
        """Start the next attempt and wait for its exit status."""
        self.start(environment)
        return self.end()

    def done(self) -> DigitsRun:
        """This run, once its attempt has ended well."""
        assert self.end() == 0, self.log
        return self

    def wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until ``progress.json`` fulfils a condition; fails if the attempt ends or hangs before."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self.progress):
            assert time.monotonic() < deadline, f"hung: {self.progress}\n{self.log}"
            try:
                status = self.process.wait(0.002)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"ended with {status} too early: {self.progress}\n{self.log}")

    def signal(self, number: signal.Signals) -> int:
        """Send a signal; the exit status that follows."""
        self.process.send_signal(number)
        return self.end()

    def kill(self) -> None:
        """End what may still run."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def copy_checkpoints_of(self, other: DigitsRun) -> None:
        """Take over the checkpoints of a run with equal settings, and nothing else of it."""
        shutil.copytree(other.done().checkpoints, self.checkpoints)

    @property
    def progress(self) -> dict[str, Any]:
        return self._json("progress.json")

    @property
    def result(self) -> dict[str, Any]:
        return self._json("result.json")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.output / name
        document: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return document

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    @property
    def final_state(self) -> dict[str, bytes]:
        """Every variable and the history at the last step, as bytes: TensorFlow writes equal values equally."""
        directory = self.checkpoints / f"step-{STEPS:010d}"
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "MANIFEST.json"}

    @property
    def metrics(self) -> dict[str, bytes]:
        """The measurements that a person sees, as bytes."""
        return {name: (self.output / name).read_bytes() for name in ("metrics.json", "metrics.jsonl")}
