# SPDX-License-Identifier: Apache-2.0
"""``down``: end a local cloud and prove that no process of it is left."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from localcloud.cli.control_client import CommandError, ask
from localcloud.endpoints import FILE_NAME, Endpoints
from localcloud.vm.processes import living

_PATIENCE = 120.0
_POLL = 0.02


def down(state_dir: Path) -> int:
    """End the cloud of a state directory and everything it has started.

    Processes that are left after an orderly end are named and killed, and looked for once more.

    :return: 0 if the cloud ended in order and nothing was left, else 1.
    """
    processes = _processes_of(state_dir)
    orderly = _stop_server(state_dir)
    left = _unique(living.still_alive(processes) + living.marked(state_dir))
    (state_dir / FILE_NAME).unlink(missing_ok=True)
    if left:
        _report("These processes were left and are killed now:", left)
        for process in left:
            _signal(process, signal.SIGKILL)
        survivors = _wait(lambda: living.still_alive(left))
        if survivors:
            _report("These processes cannot be killed:", survivors)
        return 1
    sys.stdout.write(_farewell(state_dir, len(processes)))
    return 0 if orderly else 1


def _farewell(state_dir: Path, count: int) -> str:
    if count == 0:
        return f"No process of a local cloud of {state_dir} is running.\n"
    ended = "its process has ended" if count == 1 else f"none of its {count} processes is left"
    return f"The local cloud of {state_dir} is down; {ended}.\n"


def _processes_of(state_dir: Path) -> list[psutil.Process]:
    """Return the processes that the cloud itself knows, and those that bear its mark."""
    try:
        pids = ask(state_dir, "/status")["vm_processes"]
    except CommandError:
        pids = []
    return _unique(living.known(pids) + living.marked(state_dir))


def _stop_server(state_dir: Path) -> bool:
    """End the cloud's own process; return whether it ended in order, or was gone already."""
    try:
        pid = Endpoints.read(state_dir).pid
    except FileNotFoundError:
        return True
    process = living.find(pid)
    if process is None or "localcloud" not in living.command_of(process):
        return True
    _signal(process, signal.SIGTERM)
    if not _wait(lambda: living.still_alive([process])):
        return True
    _report(f"The local cloud did not end within {_PATIENCE:.0f} s and is killed:", [process])
    _signal(process, signal.SIGKILL)
    _wait(lambda: living.still_alive([process]))
    return False


def _wait(alive: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    deadline = time.monotonic() + _PATIENCE
    while (left := alive()) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return left


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _unique(processes: list[psutil.Process]) -> list[psutil.Process]:
    return list({process.pid: process for process in processes}.values())


def _report(title: str, processes: list[psutil.Process]) -> None:
    lines = [title, *(f"  {process.pid}  {living.command_of(process)}" for process in processes)]
    sys.stderr.write("\n".join(lines) + "\n")
