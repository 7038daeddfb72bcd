# SPDX-License-Identifier: Apache-2.0
"""What the tests of the training scripts share: the scripts on the path, and one undisturbed run to compare with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.digits_run import DigitsRun
from tests.train.script_run import SCRIPTS

# The scripts import one another from the directory they lie in, as they do on the TPU VM.
if str(SCRIPTS) not in sys.path:
    sys.path.append(str(SCRIPTS))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DigitsRun]:
    """A short run that nothing disturbs, with few checkpoints: what every disturbed run must equal.

    It has only been started: :meth:`DigitsRun.done` waits for it, so that it shares the time of the first test.
    """
    run = DigitsRun(tmp_path_factory.mktemp("undisturbed"), "--save-every", "100")
    run.start()
    yield run
    run.kill()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[DigitsRun]:
    """A run in a directory of its own that saves every 5 steps; no process of it outlives the test."""
    run = DigitsRun(tmp_path, "--save-every", "5")
    yield run
    run.kill()
