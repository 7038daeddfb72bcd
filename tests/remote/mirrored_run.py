# SPDX-License-Identifier: Apache-2.0
"""Runs whose checkpoints are mirrored into a bucket."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_tpu import protocol
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.source.bundle import Bundle
from tests.remote.checkpoint_server import URI, CheckpointServer
from tests.remote.vm import LONG_GRACE, REPOSITORY, Machine, empty_tar, request, until

COUNTING_TRAINING = (sys.executable, str(Path(__file__).with_name("counting_training.py")))


@dataclass
class MirroredRun:
    """A run of :mod:`tests.remote.counting_training` (or another command) on one machine.

    :param machine: where.
    :param bucket: receives its checkpoints.
    :param allow: file with the step up to which it may count.
    """

    machine: Machine
    bucket: CheckpointServer
    allow: Path

    def start(self, *argv: str, attempt: int = 1, login: Mapping[str, str] | None = None, **fields: Any) -> RunRef:
        """Start an attempt; ``login`` is added to what the login finds."""
        environment = {"ALLOW": str(self.allow), "TRC_LIBRARY": str(REPOSITORY / "include" / "train"), "MINE": "run"}
        fields = {"checkpoints_uri": URI, "mirror_secs": 0.1, "grace_secs": LONG_GRACE, **fields}
        job = JobSpec("run", attempt, argv or COUNTING_TRAINING, environment=environment, **fields)
        data = request(job, Bundle((), empty_tar()))
        answer = self.machine.ask("start", data=data, STORAGE_EMULATOR_HOST=self.bucket.url, **(login or {}))
        assert answer["type"] == protocol.STARTED, answer
        return job.ref

    def count_to(self, step: int) -> None:
        """Let it count further."""
        fresh = self.allow.with_name("allow.new")
        fresh.write_text(str(step))
        fresh.replace(self.allow)  # no reader sees it empty

    def mirror(self, run: RunRef) -> dict[str, Any]:
        """The state that the mirror reports; empty before its first report."""
        return self.machine.status(run)["mirror"] or {}

    def mirrored(self, run: RunRef, step: int) -> None:
        """Count to a step and wait until that is durable."""
        self.count_to(step)
        until(lambda: self.mirror(run).get("last_step") == step)

    @property
    def checkpoints(self) -> Path:
        """The run's checkpoint directory."""
        return self.machine.attempt().parent / protocol.CHECKPOINT_DIR
