# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's and Keras' own checkpoints, on the disk and in ``gs://``: a lost machine costs no result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.gcs.tls.proxy import TLSFront
from tests.frameworks.framework_run import FrameworkRun
from tests.frameworks.undisturbed import Undisturbed
from tests.remote.checkpoint_server import CheckpointServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PROGRAM = (sys.executable, str(Path(__file__).with_name("programs") / "tensorflow_training.py"))
MECHANISMS = ("manager", "model_checkpoint", "backup")
SAVED, LOST = 4, 6  # it saves step 4 and is killed after step 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """Each of the trainings, undisturbed."""
    with Undisturbed(tmp_path_factory.mktemp("whole"), *PROGRAM, "{folder}", *MECHANISMS) as run:
        yield run


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_files_survive_the_machine(
    bucket: CheckpointServer, tmp_path: Path, whole: Undisturbed, mechanism: str
) -> None:
    """Saved to the disk, they are in the bucket before the machine is lost, and the next attempt finds them again."""
    run = FrameworkRun(tmp_path / "run", bucket, (*PROGRAM, "$TRC_CHECKPOINT_DIR", mechanism))
    with run.start(steps=LOST):
        run.mirrored(SAVED)
        run.lose_machine()
        run.start()
        assert run.ended_as(mechanism) == whole.ended_as(mechanism)
        assert f"begins at step {SAVED}\n" in run.log


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_objects_survive_the_machine(
    bucket: CheckpointServer, front: TLSFront, tmp_path: Path, whole: Undisturbed, mechanism: str
) -> None:
    """Saved to ``gs://`` by TensorFlow itself, they are found there by the next attempt; nothing else saves them."""
    command = (*PROGRAM, "gs://checkpoints/mine", mechanism)
    run = FrameworkRun(tmp_path / "run", bucket, command, front.environment())
    with run.start(steps=LOST):
        run.saved(SAVED)
        run.lose_machine()
        assert bucket.steps == []
        run.start()
        assert run.ended_as(mechanism) == whole.ended_as(mechanism)
        assert f"begins at step {SAVED}\n" in run.log
