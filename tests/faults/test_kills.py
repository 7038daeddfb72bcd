# SPDX-License-Identifier: Apache-2.0
"""A training that is killed at any instant, with or without its machine, ends with the bits of an undisturbed one."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import RunRef
from tests.remote.checkpoints.test_mirror_digits import DIGITS, final_state
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import REPOSITORY, until

ROUNDS = int(os.environ.get("KILL_ROUNDS", "12"))
"""How many kills; ``make soak`` asks for 200."""

STEPS = 60
SLACK = 3
"""Steps that a training may go beyond the drawn one before it dies: working, saving or waiting, but never over."""

TIMEOUT = 240.0
LIBRARY = str(REPOSITORY / "include" / "train")
LEARNING = (sys.executable, str(Path(__file__).with_name("learning.py")), str(STEPS))

pytestmark = pytest.mark.timeout(900)


@dataclass
class Killed:
    """What a kill has left.

    :param heir: the run on the machine where it continues.
    :param step: from which the bucket or the disk must let it continue.
    """

    heir: MirroredRun
    step: int


def kill_training(run: MirroredRun, moved_run: MirroredRun) -> Killed:
    """The script dies alone; the runner lives and says so."""
    saved = on_disk(run)
    os.kill(run.machine.recorded()["pid"], signal.SIGKILL)
    result = run.machine.result()
    assert result["signal"] == signal.SIGKILL
    assert result["last_durable_step"] >= saved
    return Killed(run, saved)


def kill_everything(run: MirroredRun, moved_run: MirroredRun) -> Killed:
    """The script dies with its runner, so that no process is left to report it; the disk stays."""
    saved = on_disk(run)
    run.machine.kill_all()
    return Killed(run, saved)


def kill_machine(run: MirroredRun, moved_run: MirroredRun) -> Killed:
    """The machine is gone with its disk; what the mirror had called safe is in the bucket."""
    safe = int(until(lambda: run.mirror(RunRef("run", 1)).get("last_step"), TIMEOUT) or 0)
    run.machine.kill_all()
    shutil.rmtree(run.machine.home / protocol.ROOT_DIR)
    return Killed(moved_run, safe)


Kill = Callable[[MirroredRun, MirroredRun], Killed]
KILLS: tuple[Kill, ...] = (kill_training, kill_everything, kill_machine)


def on_disk(run: MirroredRun) -> int:
    """Step of the newest checkpoint that the script has committed; at least one is waited for."""
    return until(
        lambda: max(map(int, re.findall(r"'step-(\d+)'", str(os.listdir(run.checkpoints)))), default=0), TIMEOUT
    )


def reached(run: MirroredRun, step: int) -> bool:
    """Whether the first attempt has made so many steps."""
    return ((run.machine.status()["progress"] or {}).get("step") or 0) >= step


def finish(run: MirroredRun, ref: RunRef) -> None:
    """Wait for the good end of an attempt."""
    until((run.machine.attempt(ref) / protocol.EXIT_FILE).exists, TIMEOUT)
    assert run.machine.result(ref)["exit_code"] == 0, run.machine.log(ref).decode()


def weights(run: MirroredRun, ref: RunRef) -> bytes:
    """The result of the training."""
    return (run.machine.attempt(ref) / protocol.OUTPUT_DIR / "weights").read_bytes()


def first_step(run: MirroredRun, ref: RunRef) -> int:
    """The step at which an attempt says that it begins."""
    found = re.search(r"begins at step (\d+)", run.machine.log(ref).decode())
    assert found is not None
    return int(found[1])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a training to which nothing happens, not even a runner."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "allow").write_text(str(STEPS + 1))
    places = {"ALLOW": "allow", "TRC_OUTPUT_DIR": ".", "TRC_CHECKPOINT_DIR": "checkpoints"}
    environment = {**{name: str(folder / place) for name, place in places.items()}, "TRC_LIBRARY": LIBRARY}
    subprocess.run(LEARNING, env=environment, check=True)
    return (folder / "weights").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_weights_are_those_of_an_undisturbed_run(
    number: int, run: MirroredRun, moved_run: MirroredRun, undisturbed: bytes
) -> None:
    """Killed at a drawn step, at any point of its work, the run resumes from a step it had saved and loses no bit."""
    draws = random.Random(number)
    step, kill = draws.randrange(2, STEPS), draws.choice(KILLS)
    run.count_to(min(step + SLACK, STEPS))
    run.start(*LEARNING)
    until(lambda: reached(run, step), TIMEOUT)
    killed = kill(run, moved_run)
    run.count_to(STEPS + 1)
    second = killed.heir.start(*LEARNING, attempt=2)
    finish(killed.heir, second)
    assert killed.heir.machine.result(second)["checkpoint_durable"]
    assert first_step(killed.heir, second) >= killed.step
    assert weights(killed.heir, second) == undisturbed


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
def test_the_shipped_example_ends_with_the_same_bits(number: int, run: MirroredRun, moved_run: MirroredRun) -> None:
    """TensorFlow's variables, optimiser and history are those of an undisturbed run, whatever was killed."""
    step = random.Random(number).randrange(20, 300)
    run.start(*DIGITS)
    until(lambda: reached(run, step), TIMEOUT)
    killed = KILLS[number](run, moved_run)
    second = killed.heir.start(*DIGITS, attempt=2)
    finish(killed.heir, second)
    state = final_state(killed.heir)
    shutil.rmtree(run.machine.home / protocol.ROOT_DIR, ignore_errors=True)
    calm = run.start(*DIGITS, checkpoints_uri="")
    finish(run, calm)
    assert state == final_state(run)
