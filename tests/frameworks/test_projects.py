# SPDX-License-Identifier: Apache-2.0
"""The projects below ``include/train``: stopped, then killed with their machine, they end like an undisturbed run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from localcloud.gcs.tls.proxy import TLSFront
from tests.frameworks import sample_data
from tests.frameworks.framework_run import TIMEOUT, FrameworkRun
from tests.frameworks.interpreter import PYTHON
from tests.remote.checkpoint_server import CheckpointServer
from tests.train.interrupted import Interruption
from tests.train.script_run import SCRIPTS, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SMALL = {
    "jax_flax": "--data gs://checkpoints/text.txt --batch 4 --length 16 --width 16 --layers 1",
    "pytorch_xla": "--data gs://checkpoints/digits.npz --batch 8",
    "bert": "--data gs://checkpoints/text.txt --batch 4 --length 14 --width 16 --words 12",
}
FLOWERS = (
    "--data gs://checkpoints/*.tfrec --base MobileNet --weights none --size 32 --batch 4 --epochs 3 --frozen-epochs 1"
)
LOST = Interruption("progress.json", step=2, hold=True)  # the machine, after the second step (or epoch)
STOPPED = Interruption("progress.json", step=4, signal=signal.SIGTERM)


class Project:
    """A project with its data in a bucket, run with the machine's own Python or that of the frameworks.

    :param python: with the project's packages.
    :param name: its folder.
    :param arguments: that make it small.
    :param bucket: has its data, and gets its checkpoints.
    :param front: leads the ``gs://`` of TensorFlow to the bucket.
    :param folder: for its machines.
    """

    def __init__(
        self, python: str, name: str, arguments: str, bucket: CheckpointServer, front: TLSFront, folder: Path
    ) -> None:
        self._command = (python, str(SCRIPTS / name / "train.py"), *arguments.split())
        self._environment = {**front.environment(), "STORAGE_EMULATOR_HOST": bucket.url, "TRC_ACCEL": "cpu"}
        self._folder = folder
        login = {**front.environment(), "TRC_ACCEL": "cpu"}
        self.run = FrameworkRun(folder / "run", bucket, self._command, login)

    def undisturbed(self) -> dict[str, Any]:
        """The figures of a run by hand."""
        folders = {"TRC_OUTPUT_DIR": "output", "TRC_CHECKPOINT_DIR": "saved"}
        environment = {**clean_environment(), **self._environment, **folders}
        subprocess.run(self._command, cwd=self._folder, env=environment, check=True, timeout=TIMEOUT)
        figures: dict[str, Any] = json.loads((self._folder / "output" / "metrics.json").read_bytes())
        return figures


def upload(bucket: CheckpointServer, objects: Mapping[str, bytes]) -> None:
    """Put objects at the top of the bucket."""
    for name, content in objects.items():
        bucket.bucket.blob(name).upload_from_string(content)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", SMALL)
def test_a_project_ends_like_an_undisturbed_one(
    bucket: CheckpointServer, front: TLSFront, tmp_path: Path, name: str
) -> None:
    """It loses its machine after a save, is stopped on request on the next one, and ends on a third."""
    upload(bucket, {**sample_data.text(), **sample_data.pictures()})
    project = Project(PYTHON, name, f"{SMALL[name]} --steps 6 --save-every 2", bucket, front, tmp_path)
    with project.run as run:
        run.start(interruption=LOST).mirrored(2)
        run.lose_machine()
        stopped = run.start(interruption=STOPPED).result()
        assert "from step 2" in run.log
        assert (stopped["exit_code"], stopped["checkpoint_durable"]) == (75, True)
        step = run.step
        assert step in (4, 5)  # a project that saves at a fixed step may look for a request right after it
        run.lose_machine()
        assert run.start().ended_as("metrics") == project.undisturbed()
        assert f"from step {step} " in run.log


def test_flowers_end_like_undisturbed_ones(bucket: CheckpointServer, front: TLSFront, tmp_path: Path) -> None:
    """TensorFlow reads its TFRecords from the bucket; it loses its machine while the whole network learns."""
    subprocess.run([sys.executable, str(Path(__file__).with_name("flower_records.py")), str(tmp_path)], check=True)
    upload(bucket, {path.name: path.read_bytes() for path in tmp_path.glob("*.tfrec")})
    project = Project(sys.executable, "flowers", FLOWERS, bucket, front, tmp_path)
    with project.run as run:
        run.start(interruption=LOST).mirrored(2)
        run.lose_machine()
        assert run.start().ended_as("metrics") == project.undisturbed()
        assert "from epoch 2 of 3" in run.log
