# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a TPU VM's login: a home directory and the runner, called as plain processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from airflow_tpu import protocol
from airflow_tpu.core import json_form
from airflow_tpu.core.run.job import JobSpec, RunRef
from airflow_tpu.core.source.bundle import Bundle, RunnerArchive
from localcloud.testing import eventually

REPOSITORY = Path(__file__).resolve().parents[2]
RUN = RunRef("run", 1)
LONG_GRACE = 600.0  # seconds that a script which listens never needs, however busy the machine is
T = TypeVar("T")


def pythons() -> list[str]:
    """Interpreters that can run the runner, oldest first: python3.8 on PATH or under pyenv, then this one."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [shutil.which("python3.8"), *map(str, sorted(versions.glob("3.8.*/bin/python")))]
    return [path for path in found if path and _works(path)] + [sys.executable]


def _works(python: str) -> bool:
    """A pyenv shim of a version that is not selected exists but does not run."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def until(condition: Callable[[], T], seconds: float = 90.0) -> T:
    """Wait for other processes: return the first true value of ``condition``."""
    return eventually(condition, bool, seconds)


class Machine:
    """Runs the runner's commands with a home of its own.

    :param home: the login's home.
    :param python: the interpreter.
    """

    def __init__(self, home: Path, python: str) -> None:
        self.home = home
        self.python = python
        self.prefix: tuple[str, ...] = ()  # a program that runs the interpreter
        runner = home / "runner"
        runner.mkdir(parents=True)
        self._install_power_switch()
        subprocess.run(
            ["tar", "-xzf", "-", "-C", str(runner)],
            input=RunnerArchive.build(REPOSITORY / "include" / "remote").data,
            check=True,
        )
        self._runner = runner / "runner.py"

    def _install_power_switch(self) -> None:
        """What a runner calls to shut its machine down must never reach the computer that runs the tests."""
        programs = {
            "shutdown": f'echo "$@" >> {self.home}/switched-off',
            "sudo": f'[ "$1" = -n ] && shift\ntouch {self.home}/asked-sudo\nexec "$@"',
        }
        (self.home / "bin").mkdir()
        for name, line in programs.items():
            path = self.home / "bin" / name
            path.write_text(f"#!/bin/sh\n{line}\n")
            path.chmod(0o755)

    @property
    def switched_off(self) -> list[str]:
        """Arguments of every call of ``shutdown``."""
        path = self.home / "switched-off"
        return path.read_text().splitlines() if path.exists() else []

    def command(self, *arguments: str) -> list[str]:
        """The command line of a runner command."""
        return [*self.prefix, self.python, "-X", "utf8", str(self._runner), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        """What a login finds."""
        return {"HOME": str(self.home), "PATH": f"{self.home}/bin:{os.environ['PATH']}", **more}

    def ask(self, *arguments: str, data: bytes = b"", **more: str) -> dict[str, Any]:
        """Run a command that gives one answer."""
        done = subprocess.run(
            self.command(*arguments), input=data, capture_output=True, env=self.environment(**more), check=False
        )
        assert done.stdout, done.stderr.decode()
        return protocol.decode(done.stdout.splitlines()[-1])

    def start(
        self, *argv: str, run: RunRef = RUN, login: Mapping[str, str] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Start a job with an empty bundle; ``login`` is added to what the login finds."""
        job = JobSpec(run.run_name, run.attempt, argv, **fields)
        return self.ask("start", data=request(job, Bundle((), empty_tar())), **(login or {}))

    def evaluate(self, code: str) -> str:
        """Run Python among the runner's modules; return what it prints."""
        command = [self.python, "-c", code]
        environment = self.environment(PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(
            command, cwd=self._runner.parent, capture_output=True, env=environment, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def status(self, run: RunRef = RUN) -> dict[str, Any]:
        """Answer of the status command."""
        return self.ask("status", *named(run))

    def stop(self, grace: float, run: RunRef = RUN) -> dict[str, Any]:
        """Answer of the stop command."""
        return self.ask("stop", *named(run), "--grace", str(grace))

    def result(self, run: RunRef = RUN) -> dict[str, Any]:
        """Wait for the end of a run; return its result."""
        path = self.attempt(run) / protocol.EXIT_FILE
        until(path.exists)
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    def run(self, *argv: str, **fields: Any) -> dict[str, Any]:
        """Start a job and wait for its result."""
        assert self.start(*argv, **fields)["type"] == protocol.STARTED
        return self.result()

    def attempt(self, run: RunRef = RUN) -> Path:
        """The directory of an attempt."""
        return self.home / protocol.ROOT_DIR / protocol.RUNS_DIR / run.run_name / f"attempt-{run.attempt}"

    def log(self, run: RunRef = RUN) -> bytes:
        """The log of an attempt."""
        return (self.attempt(run) / protocol.LOG_FILE).read_bytes()

    def recorded(self, run: RunRef = RUN) -> dict[str, Any]:
        """What the supervisor has recorded of itself and its command."""
        document: dict[str, Any] = json.loads((self.attempt(run) / protocol.PID_FILE).read_text())
        return document

    def kill_all(self) -> None:
        """Kill what is left of every attempt below this home, supervisors included."""

        def none_left() -> bool:
            left = processes_with(f"HOME={self.home}")
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return not left

        until(none_left)


def request(job: JobSpec, bundle: Bundle) -> bytes:
    """What the start command reads."""
    described = {"length": len(bundle.data), "sha256": bundle.sha256}
    return protocol.encode(protocol.START, job=json_form.to_json(job), bundle=described) + bundle.data


def named(run: RunRef) -> tuple[str, ...]:
    """The options that name an attempt."""
    return ("--run", run.run_name, "--attempt", str(run.attempt))


def empty_tar() -> bytes:
    """An archive without members."""
    return b"\0" * 1024


def processes_with(variable: str) -> list[int]:
    """Live processes of this computer with ``NAME=value`` in their environment: other tests run beside this one."""
    return [pid for pid, variables in _environments().items() if variable.encode() in variables]


def _environments() -> Mapping[int, list[bytes]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
    return found
