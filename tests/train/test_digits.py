# SPDX-License-Identifier: Apache-2.0
"""A full run by hand, and what ends the script before it trains."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from digits_parts import data
from tests.train.digits_run import DigitsRun
from tests.train.script_run import HANG_SECS, SCRIPTS, clean_environment


def by_hand(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script as a person does: from any directory, with nothing of the pipeline."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "digits.py"), *arguments],
        cwd=directory,
        env={**clean_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=HANG_SECS,
        check=False,
    )


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The output directory and the log of a run with every default."""
    directory = tmp_path_factory.mktemp("by_hand")
    ended = by_hand(directory)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return directory / "output", ended.stdout


@pytest.mark.slow
def test_a_run_by_hand_reaches_the_promised_accuracy(full: tuple[Path, str]) -> None:
    """With every default, at least 97 % of the test digits are recognised, and the result says so too."""
    output, log = full
    metrics = json.loads((output / "metrics.json").read_text())
    result = json.loads((output / "result.json").read_text())
    assert metrics["test_accuracy"] >= 0.97
    assert f"test accuracy {metrics['test_accuracy']:.4f}" in log
    assert (result["status"], result["exit_code"]) == ("done", 0)
    assert result["metrics"]["test_accuracy"] == {"value": metrics["test_accuracy"], "higher_is_better": True}


@pytest.mark.slow
def test_the_log_can_be_read_by_a_person(full: tuple[Path, str]) -> None:
    """Some lines with step, loss, accuracy, rate and time left, not one per step."""
    lines = [line for line in full[1].splitlines() if line.startswith("step ")]
    assert 2 <= len(lines) <= 60
    assert lines[-1].startswith("step 800/800  loss ")
    assert all(word in lines[-1] for word in ("accuracy", "steps/s", "s left"))


@pytest.mark.slow
def test_the_exported_model_recognises_what_was_measured(full: tuple[Path, str]) -> None:
    """Loaded without our code, the SavedModel has the accuracy of metrics.json on the test images."""
    import tensorflow

    test = data.load("").test
    model = tensorflow.saved_model.load(str(full[0] / "saved_model"))
    answers = np.argmax(model.serve(test.images.astype(np.float32)), axis=1)
    expected = json.loads((full[0] / "metrics.json").read_text())["test_accuracy"]
    assert float(np.mean(answers == test.labels)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_every_artifact_is_there_and_listed(full: tuple[Path, str]) -> None:
    """SavedModel, events of both splits, history and progress exist; result.json lists sizes that are true."""
    output = full[0]
    assert len(list(output.glob("tensorboard/train/events*"))) == 1
    assert len(list(output.glob("tensorboard/validation/events*"))) == 1
    history = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in history if row["split"] == "validation"] == list(range(100, 801, 100))
    progress = json.loads((output / "progress.json").read_text())
    assert (progress["state"], progress["step"], progress["last_durable_step"]) == ("finished", 800, 800)
    listed = json.loads((output / "result.json").read_text())["artifacts"]
    assert {"metrics.json", "saved_model/saved_model.pb"} <= {entry["path"] for entry in listed}
    assert all((output / entry["path"]).stat().st_size == entry["bytes"] for entry in listed)


@pytest.mark.slow
def test_a_promised_tpu_that_is_missing_ends_the_script(run: DigitsRun) -> None:
    """On this machine TRC_ACCEL=tpu ends with 69, trains nothing and says that there is no fall-back."""
    assert run.attempt({"TRC_ACCEL": "tpu"}) == 69, run.log
    assert run.result["status"] == "failed"
    assert "never falls back to the CPU" in run.log
    assert not run.checkpoints.exists()


@pytest.mark.parametrize(
    ("arguments", "environment", "status", "said"),
    [
        (("--steps", "0"), {}, 64, "--steps"),
        (("--steps", "many"), {}, 64, "invalid int value: 'many'"),
        (("--dropout", "1"), {}, 64, "--dropout"),
        (("--learning-rate", "nan"), {}, 64, "--learning-rate"),
        (("--no-such-argument",), {}, 64, "--no-such-argument"),
        ((), {"TRC_ACCEL": "quantum"}, 64, "tpu, gpu, cpu, auto"),
        ((), {"TRC_SEED": "-1"}, 64, "--seed"),
        ((), {"TRC_WORKER_COUNT": "4"}, 64, "one host"),
        ((), {"TRC_DATA_URI": "https://host/digits.npz"}, 64, "TRC_DATA_URI"),
        ((), {"TRC_DATA_URI": "/nowhere/digits.npz"}, 65, "/nowhere/digits.npz"),
        ((), {"TRC_RESUME": "/nowhere/checkpoint"}, 66, "TRC_RESUME"),
    ],
)
def test_what_is_wrong_shows_before_tensorflow_is_loaded(
    tmp_path: Path, arguments: tuple[str, ...], environment: Mapping[str, str], status: int, said: str
) -> None:
    """A wrong argument, variable, data set or resume point ends with its own status and names what is wrong."""
    ended = by_hand(tmp_path, *arguments, **environment)
    assert ended.returncode == status
    assert said in ended.stdout + ended.stderr
    assert "TensorFlow 2" not in ended.stdout
