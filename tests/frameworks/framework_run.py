# SPDX-License-Identifier: Apache-2.0
"""Runs a training with a framework's own checkpoints, attempt after attempt, each on a machine of its own."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import google_crc32c

from airflow_tpu.core.run.job import RunRef
from checkpoints.quiescence import collect_files
from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import Machine, until
from tests.train.interrupted import Interruption

TIMEOUT = 400.0  # seconds that the import of a framework never takes, however busy the machine is
ENDLESS = 1_000_000  # more steps than any training has


def _crc32c(path: Path) -> str:
    return base64.b64encode(google_crc32c.value(path.read_bytes()).to_bytes(4, "big")).decode()


def _contents(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {entry["path"]: entry["crc32c"] for entry in manifest["files"]}


class FrameworkRun:
    """One run of a training whose machine can be lost with its disk.

    :param folder: for its machines, each with a home of its own.
    :param bucket: receives its checkpoints.
    :param command: of the training.
    :param login: what the login of a machine finds, for trainings that write to ``gs://`` themselves.
    """

    def __init__(
        self, folder: Path, bucket: CheckpointServer, command: tuple[str, ...], login: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self._folder, self._bucket, self._command, self._login = folder, bucket, command, login
        self._on: list[MirroredRun] = []

    def start(self, steps: int = ENDLESS, interruption: Interruption | None = None) -> Self:
        """Start the next attempt on a new machine; it waits after so many steps, or at its interruption."""
        attempt = len(self._on) + 1
        machine = Machine(self._folder / f"home-{attempt}", sys.executable)
        self._on.append(MirroredRun(machine, self._bucket, self._folder / "allow"))
        self._on[-1].count_to(steps)
        command = self._command
        if interruption is not None:
            python, script, *arguments = command
            command = tuple(interruption.command(Path(script), *arguments, python=python))
        self._on[-1].start(*command, attempt=attempt, login=self._login)
        return self

    def mirrored(self, step: int) -> None:
        """Wait until what the training has saved at a step, after which it waits, is in the bucket as it is here."""
        self.saved(step)
        self._await(lambda: self._contents() in [_contents(one) for one in self._bucket.manifests.values()])

    def saved(self, step: int) -> None:
        """Wait until the training says that it has saved a step."""
        self._await(lambda: self.step == step)

    def lose_machine(self) -> None:
        """Kill everything on the machine, and remove its disk."""
        self._on[-1].machine.kill_all()
        shutil.rmtree(self._on[-1].machine.home / ".airflow-tpu")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._on:
            run.machine.kill_all()

    def result(self) -> dict[str, Any]:
        """Wait for the end of the attempt; its result."""
        until(self._exit.exists, TIMEOUT)
        return self._on[-1].machine.result(self._ref)

    def ended_as(self, name: str) -> dict[str, Any]:
        """Wait for the end, which must be a good one; how the training of this name ended."""
        assert self.result()["exit_code"] == 0, self.log
        return self._document(name)

    @property
    def step(self) -> int | None:
        """The step that the newest attempt reports, None before its first report."""
        return self._document("progress").get("step")

    @property
    def log(self) -> str:
        """The log of the newest attempt."""
        return self._on[-1].machine.log(self._ref).decode(errors="replace")

    @property
    def _ref(self) -> RunRef:
        return RunRef("run", len(self._on))

    @property
    def _exit(self) -> Path:
        return self._on[-1].machine.attempt(self._ref) / "exit.json"

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, but no longer than the attempt runs."""
        until(lambda: condition() or self._exit.exists(), TIMEOUT)
        assert condition(), self.log

    def _contents(self) -> dict[str, str]:
        files, _ = collect_files(self._on[-1].checkpoints)
        return {name: _crc32c(path) for name, path in files.items()}

    def _document(self, name: str) -> dict[str, Any]:
        path = self._on[-1].machine.attempt(self._ref) / "output" / f"{name}.json"
        document: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return document
