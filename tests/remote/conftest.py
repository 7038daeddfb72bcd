# SPDX-License-Identifier: Apache-2.0
"""Machines, buckets and runs that the tests of the runner share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import Machine, pythons


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A home directory with the runner installed; whatever a test leaves running is ended."""
    machine = Machine(tmp_path / "home", sys.executable)
    yield machine
    machine.kill_all()


@pytest.fixture
def oldest_machine(tmp_path: Path) -> Iterator[Machine]:
    """The same with the oldest supported Python that this computer has."""
    machine = Machine(tmp_path / "home", pythons()[0])
    yield machine
    machine.kill_all()


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[CheckpointServer]:
    """An empty bucket for checkpoints; a scripted fault that did not strike is a mistake of the test."""
    with CheckpointServer(tmp_path / "gcs") as running:
        yield running
    assert running.faults.unused() == []


@pytest.fixture
def run(oldest_machine: Machine, bucket: CheckpointServer, tmp_path: Path) -> MirroredRun:
    """A run whose checkpoints are mirrored and which may not count yet."""
    (tmp_path / "allow").write_text("0")
    return MirroredRun(oldest_machine, bucket, tmp_path / "allow")


@pytest.fixture
def moved_run(run: MirroredRun, tmp_path: Path) -> Iterator[MirroredRun]:
    """The same run on another machine, which knows nothing of it."""
    machine = Machine(tmp_path / "other-home", run.machine.python)
    yield MirroredRun(machine, run.bucket, run.allow)
    machine.kill_all()
