# SPDX-License-Identifier: Apache-2.0
"""Runs a training script as a process of its own, attempt after attempt, as the TPU VM does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.train.interrupted import Interruption

SCRIPTS = Path(__file__).parents[2] / "include" / "train"
HANG_SECS = 240.0  # a process that has not ended by then counts as hung


def clean_environment() -> dict[str, str]:
    """The environment of the tests without anything that a training script or TensorFlow's TPU client reads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TRC_", "TPU_"))}


class ScriptRun:
    """One run of a script: a checkpoint directory that stays, and an output directory.

    :param script: its name below ``include/train``.
    :param directory: where everything lies.
    :param arguments: of the script.
    """

    def __init__(self, script: str, directory: Path, *arguments: str) -> None:
        self._script = SCRIPTS / script
        self.directory = directory
        self.output = directory / "output"
        self.checkpoints = directory / "checkpoints"
        self.arguments = list(arguments)
        self.attempts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: Mapping[str, str] | None = None, interruption: Interruption | None = None) -> None:
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
        command = [sys.executable, str(self._script), *self.arguments]
        if interruption is not None:
            command = interruption.command(self._script, *self.arguments)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**clean_environment(), **contract, **(environment or {})},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )

    def end(self) -> int:
        """Wait until the attempt ends; its exit status."""
        assert self._process is not None, "the run has not been started"
        return self._process.wait(HANG_SECS)

    def attempt(self, environment: Mapping[str, str] | None = None, interruption: Interruption | None = None) -> int:
        """Start the next attempt and wait for its exit status."""
        self.start(environment, interruption)
        return self.end()

    def done(self) -> Self:
        """This run, once its attempt has ended well."""
        assert self.end() == 0, self.log
        return self

    def kill(self) -> None:
        """End what may still run."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def copy_checkpoints_of(self, other: ScriptRun) -> None:
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

    def state_at(self, step: int) -> dict[str, bytes]:
        """All files of a checkpoint but its manifest: TensorFlow writes equal values equally."""
        directory = self.checkpoints / f"step-{step:010d}"
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "MANIFEST.json"}
