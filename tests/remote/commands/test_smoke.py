# SPDX-License-Identifier: Apache-2.0
"""Framework, device and bucket are tried before the script, and what does not work is named."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from typing import Any

import pytest

from airflow_tpu import protocol
from airflow_tpu.core.run.job import JobSpec
from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.errors import AcceleratorMissing, AccessDenied, RunFailed, StorageUnreachable, TPUError
from tests.remote.checkpoint_server import CheckpointServer
from tests.remote.vm import Machine, request

# Stands for jax: as much of it as the probe touches.
JAX = """
__version__ = {version!r}
class Matrix:
    def __matmul__(self, other):
        return {total}
class Device:
    platform = {platform!r}
    def __str__(self):
        return "device 0"
def devices():
    return [Device()]
"""
NUMPY = "from jax import Matrix\ndef ones(shape):\n    return Matrix()\ndef sum(value):\n    return value\n"
GOOD = {"version": "0.6.2", "total": 128.0**3, "platform": "tpu"}


def files(init: str) -> bytes:
    """A bundle with the stand-in."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in {"jax/__init__.py": init, "jax/numpy.py": NUMPY}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def smoke(machine: Machine, init: str, login: dict[str, str] | None = None, **fields: Any) -> tuple[RunResult, str]:
    """Run a script after the smoke step; return the result and the log."""
    given = {"framework": "jax", "environment": {"TRC_ACCEL": "tpu"}, **fields}
    job = JobSpec("run", 1, ("echo", "trained"), **given)
    answer = machine.ask("start", data=request(job, Bundle((), files(init))), **(login or {}))
    assert answer["type"] == protocol.STARTED
    return RunResult.from_json(machine.result()), machine.log().decode()


HANG = "import threading\nthreading.Event().wait()\n"
HANGS = {
    "import": (HANG, "jax was not imported in 5 s", 1, RunFailed),
    "devices": (
        JAX.format(**GOOD) + "def devices():\n    " + HANG.replace("\n", ";"),
        "its devices in 5 s",
        69,
        AcceleratorMissing,
    ),
    "product": (
        JAX.format(**GOOD).replace("return 2", HANG.replace("\n", ";") + "return 2"),
        "two matrices in 5 s",
        1,
        RunFailed,
    ),
}


@pytest.mark.parametrize(("init", "words", "code", "kind"), HANGS.values(), ids=HANGS)
def test_a_hang_is_cut_and_named(machine: Machine, init: str, words: str, code: int, kind: type[TPUError]) -> None:
    """Each part has its own limit, and only a TPU that is waited for in vain asks for another one."""
    result, log = smoke(machine, init, smoke_secs=5.0)
    assert (result.step, result.exit_code) == ("smoke", code)
    assert words in log
    assert "trained" not in log
    assert type(classify_exit(result)) is kind


def test_a_silent_bucket_is_cut_and_named(machine: Machine, bucket: CheckpointServer) -> None:
    """The client's own patience is minutes; the next try may find it."""
    delay = {"action": "delay", "seconds": 600.0}
    bucket.faults.add({"point": "gcs.request", "match": {"method": "GET", "object": "*smoke-1"}, "params": delay})
    login = {"STORAGE_EMULATOR_HOST": bucket.url}
    result, log = smoke(machine, JAX.format(**GOOD), login, artifacts_uri="gs://checkpoints/runs", smoke_secs=5.0)
    assert (result.step, result.exit_code) == ("smoke", 74), log
    assert "cannot read below gs://checkpoints/runs: no answer in 5 s" in log


def test_a_hang_ends_within_half_a_minute() -> None:
    """As long as a part may take, and a few seconds for what starts it."""
    assert JobSpec("run", 1, ("x",)).smoke_secs <= 25


def test_what_works_is_said_and_the_script_starts(machine: Machine) -> None:
    """Version and devices are in the log."""
    result, log = smoke(machine, JAX.format(**GOOD), framework="jax 0.6")
    assert (result.step, result.exit_code) == ("run", 0)
    assert log == "airflow-tpu: smoke: jax 0.6.2 computes on 1 device(s): device 0\ntrained\n"


def test_a_machine_without_a_tpu_says_so(machine: Machine) -> None:
    """A TPU VM of the local cloud has none, and nothing is claimed for it."""
    _, log = smoke(machine, JAX.format(**{**GOOD, "platform": "cpu"}), {"TRC_ACCEL": "cpu"})
    assert "no TPU was looked for, as TRC_ACCEL says on this machine" in log


@pytest.mark.parametrize(
    ("init", "code", "kind", "words"),
    [
        (JAX.format(**{**GOOD, "platform": "cpu"}), 69, AcceleratorMissing, "works and sees no TPU"),
        ("import no_such_module\n", 1, RunFailed, "No module named 'no_such_module' (it is not installed"),
        ("raise OSError('The TPU is already in use by process 7')\n", 1, RunFailed, "another process holds the TPU"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
            1,
            RunFailed,
            "it crashed; the framework's build",
        ),
        (JAX.format(**{**GOOD, "total": 1.0}), 1, RunFailed, "computes wrong: 1.0"),
        (JAX.format(**{**GOOD, "version": "0.7.0"}), 1, RunFailed, "jax 0.7.0 is here and 0.6 was asked for"),
    ],
    ids=["no device", "not installed", "in use", "crash", "wrong", "other version"],
)
def test_what_does_not_work_is_named(machine: Machine, init: str, code: int, kind: type[TPUError], words: str) -> None:
    """The script is not started, and the error is of the class that decides about another TPU."""
    result, log = smoke(machine, init, framework="jax 0.6")
    assert (result.step, result.exit_code) == ("smoke", code)
    assert words in log
    assert "trained" not in log
    assert type(classify_exit(result)) is kind


@pytest.mark.parametrize(
    ("method", "action", "code", "kind", "words"),
    [
        ("POST", "403", 77, AccessDenied, "may not write objects"),
        ("GET", "403", 77, AccessDenied, "may not read objects"),
        ("DELETE", "403", 77, AccessDenied, "may not delete objects"),
    ],
)
def test_each_right_in_the_bucket_is_tried(
    machine: Machine, bucket: CheckpointServer, method: str, action: str, code: int, kind: type[TPUError], words: str
) -> None:
    """Read, write and delete are three rights; the one that is missing is named."""
    bucket.fault(action, method=method, object="*smoke-1")
    login = {"STORAGE_EMULATOR_HOST": bucket.url}
    result, log = smoke(machine, JAX.format(**GOOD), login, artifacts_uri="gs://checkpoints/runs")
    assert (result.step, result.exit_code) == ("smoke", code), log
    assert words in log
    assert type(classify_exit(result)) is kind


def test_the_bucket_is_left_as_it_was(machine: Machine, bucket: CheckpointServer) -> None:
    """What the step has written is gone again."""
    login = {"STORAGE_EMULATOR_HOST": bucket.url}
    result, log = smoke(machine, JAX.format(**GOOD), login, artifacts_uri="gs://checkpoints/runs")
    assert (result.exit_code, "takes, gives and deletes objects below gs://checkpoints/runs" in log) == (0, True)
    assert bucket.all_objects("runs/") == []


def test_a_bucket_that_does_not_answer_is_tried_again() -> None:
    """The next try may find it."""
    assert isinstance(classify_exit(RunResult(74, step="smoke")), StorageUnreachable)


PATIENCE = """
import itertools, json
from commands.smoke import Patience
def cut(work, part="import"):
    now = [0.0]
    patience = Patience(25.0, lambda: int(work(now[0])), lambda: now[0])
    if part != "import":
        patience.begin()
    while not patience.is_over():
        now[0] += patience.pause
    return now[0]
print(json.dumps([cut(lambda now: 50), cut(lambda now: min(now, 20) * 100), cut(lambda now: now * 4),
    cut(lambda now: min(now, 60) * 4), cut(lambda now: now * 100, "devices")]))
"""


def test_an_import_that_works_may_take_longer(machine: Machine) -> None:
    """A busy machine is not taken for a hang; who waits from the start, or after some work, gets the limit alone."""
    waits, worked, always, long, devices = json.loads(machine.evaluate(PATIENCE))
    assert (waits, worked, always, devices) == (25.0, 25.0, 100.0, 25.0)
    assert 60 <= long <= 65


def test_effort_grows_with_work(machine: Machine) -> None:
    """CPU time counts, and a process that is gone makes none."""
    code = "import os, time\nfrom machine.processes import effort\nbefore = effort(os.getpid())\n"
    code += "while time.process_time() < 0.3:\n    pass\nprint(effort(os.getpid()) - before, effort(2**30))"
    grown, gone = map(int, machine.evaluate(code).split())
    assert grown >= 10
    assert gone == 0


@pytest.mark.slow
def test_tensorflow_itself_computes(machine: Machine) -> None:
    """The probe is right for the real framework, on the CPU of this computer."""
    python = machine.home / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    job = JobSpec("run", 1, ("echo", "trained"), framework="tensorflow")
    machine.ask("start", data=request(job, Bundle((), files(""))), TRC_ACCEL="cpu")
    assert machine.result()["exit_code"] == 0, machine.log()
    assert b"computes on 1 device(s): /device:CPU:0" in machine.log()
