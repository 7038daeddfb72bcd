# SPDX-License-Identifier: Apache-2.0
"""Sets up the processes of an attempt: the command's environment, the supervisor as its reaper, its signals."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from types import FrameType
from typing import Any, Callable

import protocol

from machine.run_dir import RunDir

_PR_SET_CHILD_SUBREAPER = 36
_NAMED = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_TRC = re.compile(r"\$(?:\{(TRC_\w+)\}|(TRC_\w+))")


def environment(run: RunDir, job: dict[str, Any]) -> dict[str, str]:
    """Return the command's environment: the login's, the client's, and what this machine knows of the attempt."""
    variables = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",  # a line printed is a line in the log
        **job.get("environment", {}),
    }
    if "TRC_ACCEL" in os.environ:
        # The machine's own setting wins: TPU VMs of the local cloud have no TPU, and say so.
        variables["TRC_ACCEL"] = os.environ["TRC_ACCEL"]
    deadline = job.get("deadline")
    variables.update(
        {
            "TRC_RUN_ID": run.run,
            "TRC_ATTEMPT": str(run.attempt),
            "TRC_DEADLINE": "" if deadline is None else str(int(deadline)),
            "TRC_STOP_GRACE_SECS": f"{job.get('grace_secs', protocol.GRACE_SECS):g}",
            "TRC_RESUME": (run.read(protocol.RESTORED_FILE) or {}).get("path", ""),
            "TRC_OUTPUT_DIR": str(run.output),
            "TRC_CHECKPOINT_DIR": str(run.checkpoints),
            "TRC_STOP_FILE": str(run.stop_file),
            protocol.MARKER: str(run.path),
        }
    )
    for name, value in job.get("environment", {}).items():
        if not name.startswith("TRC_"):
            variables[name] = _filled(name, value, variables)
    variables["PYTHONPATH"] = _joined_path(str(run.bundle), variables.get("PYTHONPATH"))  # the library is at its top
    venv = run.run_path / protocol.VENV_DIR
    if (venv / "bin").is_dir():
        # First on PATH: a shell script's python3 finds the requirements like a Python script does.
        variables["PATH"] = _joined_path(str(venv / "bin"), variables.get("PATH", os.defpath))
        variables["VIRTUAL_ENV"] = str(venv)
    return variables


def expanded(argv: list[str], variables: dict[str, str]) -> list[str]:
    """Return the words with each ``$TRC_NAME`` and ``${TRC_NAME}`` replaced by its value; nothing else is expanded."""
    return [_TRC.sub(lambda found: variables.get(found[1] or found[2], found[0]), word) for word in argv]


def _filled(name: str, value: str, variables: dict[str, str]) -> str:
    """Return a value in which ``TRC_`` names stand for theirs, and the variable's own name for what the login has."""

    def replace(found: re.Match[str]) -> str:
        named = found[1] or found[2]
        if named == name:
            return os.environ.get(name, "")
        return variables.get(named, found[0]) if named.startswith("TRC_") else found[0]

    return _NAMED.sub(replace, value)


def _joined_path(first: str, others: str | None) -> str:
    return os.pathsep.join([first, others]) if others else first


def adopt_orphans() -> None:
    """Become the parent of every orphan below, however often it forked and whatever session it made."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def wake_on_signals(on_term: Callable[[], None]) -> int:
    """Return a descriptor that becomes readable with every signal; HUP and INT do nothing else.

    They get handlers instead of SIG_IGN because an ignored signal stays ignored in the command.
    """
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)

    def nothing(number: int, frame: FrameType | None) -> None:
        """Only wake the loop up."""

    def stop(number: int, frame: FrameType | None) -> None:
        on_term()

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, nothing)
    signal.signal(signal.SIGTERM, stop)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    return readable


def drain(descriptor: int) -> None:
    """Make a descriptor of :func:`wake_on_signals` unreadable until the next signal."""
    try:
        os.read(descriptor, 4096)
    except BlockingIOError:
        return
