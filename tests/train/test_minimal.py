# SPDX-License-Identifier: Apache-2.0
"""The script that people copy: killed or stopped, it ends with the figure of an undisturbed run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.interrupted import Interruption
from tests.train.script_run import SCRIPTS, ScriptRun

STEPS = 60
ARGUMENTS = ("--steps", str(STEPS), "--save-every", "20")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptRun]:
    """A run that nothing disturbs."""
    run = ScriptRun("minimal.py", tmp_path_factory.mktemp("whole"), *ARGUMENTS)
    run.start()
    yield run
    run.kill()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ScriptRun]:
    """A run in a directory of its own; no process of it outlives the test."""
    run = ScriptRun("minimal.py", tmp_path, *ARGUMENTS)
    yield run
    run.kill()


def assert_equal(run: ScriptRun, whole: ScriptRun) -> None:
    """The last checkpoint, the rows and the figure are equal to the last bit."""
    assert run.state_at(STEPS) == whole.done().state_at(STEPS)
    assert run.result["metrics"] == whole.result["metrics"]
    assert (run.output / "metrics.jsonl").read_bytes() == (whole.output / "metrics.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("killed_at", "resumed_from"),
    [("step-0000000020", 0), ("step-0000000060", 40), ("result.json", STEPS)],
)
def test_a_killed_run_loses_nothing_beyond_its_last_checkpoint(
    run: ScriptRun, whole: ScriptRun, killed_at: str, resumed_from: int
) -> None:
    """SIGKILL just before a checkpoint or the result is published: the next attempt ends like an undisturbed run."""
    assert run.attempt(interruption=Interruption(killed_at, signal=signal.SIGKILL)) == -signal.SIGKILL, run.log
    assert run.result == {}
    assert run.attempt() == 0, run.log
    assert f"from step {resumed_from} of {STEPS}" in run.log.splitlines()[-1 - (STEPS - resumed_from) // 20 - 1]
    assert_equal(run, whole)


@pytest.mark.slow
def test_a_stopped_run_resumes_from_the_very_step(run: ScriptRun, whole: ScriptRun) -> None:
    """SIGTERM between two checkpoints ends the attempt with 75 and makes the step durable."""
    stop = Interruption("progress.json", step=33, state="training", signal=signal.SIGTERM)
    assert run.attempt(interruption=stop) == 75, run.log
    assert run.result["status"] == "stopped"
    assert "step 33 is durable" in run.result["message"]
    assert run.attempt() == 0, run.log
    assert f"from step 33 of {STEPS}" in run.log
    assert_equal(run, whole)


@pytest.mark.slow
def test_what_it_leaves_behind(whole: ScriptRun) -> None:
    """A row for each checkpoint, the weights, the progress and a figure that says which direction is better."""
    whole.done()
    assert {path.name for path in whole.output.iterdir()} == {
        "metrics.jsonl", "model.weights.h5", "progress.json", "result.json",
    }  # fmt: skip
    assert len((whole.output / "metrics.jsonl").read_text().splitlines()) == STEPS // 20
    assert whole.progress["step"] == STEPS
    figure = whole.result["metrics"]["accuracy"]
    assert figure["higher_is_better"] is True
    assert 0.8 <= figure["value"] <= 1.0


@pytest.mark.slow
def test_another_configuration_is_refused(run: ScriptRun, whole: ScriptRun) -> None:
    """Checkpoints of a run with another number of steps end the script with 66."""
    run.copy_checkpoints_of(whole)
    run.arguments += ["--steps", "80"]
    assert run.attempt() == 66, run.log


def test_it_is_short_enough_to_be_copied() -> None:
    """The README says about 150 lines."""
    lines = (SCRIPTS / "minimal.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 165
