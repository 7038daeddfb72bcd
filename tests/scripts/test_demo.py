# SPDX-License-Identifier: Apache-2.0
"""make demo: what a newcomer types first."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts.whole_chain import ROOT, TIMEOUT, Place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * TIMEOUT)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place of its own for the demo."""
    return Place(tmp_path, port=0)


@pytest.fixture
def demo(place: Place) -> Iterator[subprocess.Popen[str]]:
    """A demo that is running; ended and waited for whatever the test does."""
    with subprocess.Popen(
        [ROOT / "scripts" / "demo"],
        env=place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.terminate()


def test_the_demo_trains_a_model_and_the_bill_is_right(place: Place) -> None:
    """The whole chain succeeds, the page tells it, and no process is left."""
    result = place.run("demo")
    assert result.returncode == 0, result.stdout[-6000:]
    for fact in (
        "created",
        "v2-8 in us-central1-f",
        "deleted",
        "test accuracy 0.9",
        "TPU USAGE",
        "All as it should be.",
    ):
        assert fact in result.stdout
    assert place.survivors() == []


@pytest.mark.soak
def test_a_failing_script_makes_the_demo_fail_and_leaves_nothing(place: Place) -> None:
    """A script that does not exist ends the demo with an exit code, a reason and no process left."""
    result = place.run("demo", '{"script": "nowhere.py"}')
    assert result.returncode == 1
    assert "nowhere.py" in result.stdout
    assert "the DAG run ended as failed" in result.stdout
    assert place.survivors() == []


@pytest.mark.soak
def test_a_demo_that_is_stopped_takes_everything_down(place: Place, demo: subprocess.Popen[str]) -> None:
    """A signal in the middle of training ends DAG run, TPU VM and local cloud, and says what to do next."""
    assert demo.stdout is not None
    assert any("loading the data set" in line for line in demo.stdout)
    demo.send_signal(signal.SIGTERM)
    rest = demo.stdout.read()
    assert demo.wait() == 128 + signal.SIGTERM
    assert "Stopped before the end" in rest
    assert place.survivors() == []
