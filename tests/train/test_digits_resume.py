# SPDX-License-Identifier: Apache-2.0
"""An interrupted run ends with the same bits as an undisturbed one."""

from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.train.digits_run import STEPS, DigitsRun
from tests.train.interrupted import Interruption

pytestmark = pytest.mark.slow


def assert_equal(run: DigitsRun, undisturbed: DigitsRun) -> None:
    """Every variable, the history and the measurements are equal to the last bit."""
    assert set(undisturbed.done().final_state) == {
        "variables.index",
        "variables.data-00000-of-00001",
        "history.jsonl",
    }
    assert undisturbed.final_state == run.final_state
    assert undisturbed.metrics == run.metrics


def progress(step: int = 0, state: str = "training", **what: Any) -> Interruption:
    """Do something when the run reports a step or a state."""
    return Interruption("progress.json", step, state, **what)


@pytest.mark.timeout(900)  # each kill costs a process that imports TensorFlow
@pytest.mark.soak  # tests/faults/test_kills.py kills a lighter training, tests/dags/test_resume_dag.py this one once
@pytest.mark.parametrize("kills", [1, 12])
def test_a_run_killed_at_random_points_ends_like_an_undisturbed_one(
    run: DigitsRun, undisturbed: DigitsRun, kills: int
) -> None:
    """Kills while training or saving, and one between the last checkpoint and the export, change no bit."""
    rng = random.Random(20)
    for kill in range(kills):
        step = STEPS * kill // kills + rng.randint(1, STEPS // kills - 10)
        killed = progress(step, "saving" if kill % 2 else "training", signal=signal.SIGKILL)
        assert run.attempt(interruption=killed) == -signal.SIGKILL
    assert run.attempt(interruption=progress(state="exporting", signal=signal.SIGKILL)) == -signal.SIGKILL
    assert run.result == {}
    assert run.attempt() == 0, run.log
    assert f"resuming from step {STEPS}" in run.log
    assert run.result["status"] == "done"
    assert_equal(run, undisturbed)


def test_a_run_asked_to_stop_makes_its_work_durable_and_ends_like_an_undisturbed_one(
    run: DigitsRun, undisturbed: DigitsRun
) -> None:
    """SIGTERM, and then the stop file, end an attempt with 75 at a step that the next one resumes from."""
    run.arguments += ["--save-every", "0"]
    assert run.attempt(interruption=progress(20, signal=signal.SIGTERM)) == 75, run.log
    first = run.progress["last_durable_step"]
    assert run.attempt(interruption=progress(150, write=str(run.directory / "stop"))) == 75, run.log
    assert run.result["status"] == "stopped"
    second = run.progress["last_durable_step"]
    (run.directory / "stop").unlink()
    assert run.attempt() == 0, run.log
    assert 20 <= first < 150 <= second < STEPS
    assert [f"resuming from step {step} " in run.log for step in (first, second)] == [True, True]
    assert_equal(run, undisturbed)


def test_a_stop_that_cannot_be_made_durable_says_so(run: DigitsRun) -> None:
    """When the checkpoint directory cannot be written, SIGTERM ends the attempt with 76 and names the lost steps."""
    run.arguments += ["--save-every", "0"]
    blocked = progress(10, write=str(run.checkpoints), signal=signal.SIGTERM)
    assert run.attempt(interruption=blocked) == 76, run.log
    assert "steps are lost" in run.result["message"]


def test_a_stop_during_the_import_of_tensorflow_is_heard(run: DigitsRun) -> None:
    """SIGTERM before the first step ends the attempt with 75 without training."""
    assert run.attempt(interruption=progress(state="importing", signal=signal.SIGTERM)) == 75, run.log
    assert "nothing is lost" in run.result["message"]
    assert not run.checkpoints.exists()


def test_torn_checkpoints_are_passed_over_for_an_older_one(run: DigitsRun, undisturbed: DigitsRun) -> None:
    """With the newest two damaged, a run resumes from the third and still ends with the same bits."""
    run.copy_checkpoints_of(undisturbed)
    third, second, newest = sorted(run.checkpoints.iterdir())
    (newest / "variables.index").unlink()
    data = second / "variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    assert run.attempt() == 0, run.log
    assert f"skipping checkpoint {newest.name}: variables.index is missing" in run.log
    assert f"skipping checkpoint {second.name}" in run.log
    assert f"resuming from step {int(third.name.removeprefix('step-'))} " in run.log
    assert_equal(run, undisturbed)


def test_a_checkpoint_that_the_pipeline_names_is_resumed(run: DigitsRun, undisturbed: DigitsRun) -> None:
    """A new machine without any checkpoint continues from the one in TRC_RESUME, history included."""
    fetched = shutil.copytree(undisturbed.done().checkpoints / "step-0000000200", run.directory / "fetched")
    assert run.attempt({"TRC_RESUME": str(fetched)}) == 0, run.log
    assert "resuming from step 200 " in run.log
    assert_equal(run, undisturbed)


def test_another_configuration_is_refused(run: DigitsRun, undisturbed: DigitsRun) -> None:
    """Checkpoints of a run with another number of steps end the script with 66 and stay as they are."""
    run.copy_checkpoints_of(undisturbed)
    run.arguments += ["--steps", "400"]
    before = sorted(path.name for path in run.checkpoints.iterdir())
    assert run.attempt() == 66, run.log
    assert "another configuration" in run.log
    assert sorted(path.name for path in run.checkpoints.iterdir()) == before


def test_two_replicas_train_like_one(run: DigitsRun, undisturbed: DigitsRun) -> None:
    """Mirrored on two logical CPUs, with dropout, 50 steps give the loss of a single device up to rounding."""
    run.arguments += ["--cpu-replicas", "2", "--save-every", "0"]
    assert run.attempt() == 0, run.log
    assert run.result["replicas"] == 2
    expected, actual = rows(undisturbed.done().output), rows(run.output)
    for one, two in zip(expected[:2], actual[:2], strict=True):
        assert (two["step"], two["split"]) == (one["step"], one["split"])
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    # Rounding differs between one sum and two, and training amplifies it: at the end only the quality is equal.
    assert actual[-1]["accuracy"] == pytest.approx(expected[-1]["accuracy"], abs=0.03)


def rows(output: Path) -> list[dict[str, Any]]:
    """The history that a run has written."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
