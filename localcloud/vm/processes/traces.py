# SPDX-License-Identifier: Apache-2.0
"""Finds and kills processes by the traces they leave, where no kernel object holds them together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import psutil

from localcloud.vm.processes import proctable
from localcloud.vm.processes.proctable import Process

_ROUNDS = 1000
_QUIET = 3
"""Rounds in a row that must find nothing: a process that is just being replaced may be missed once."""

_PAUSE = 0.01


class Traces:
    """What the processes of one worker can be known by, beside their descent.

    :param directory: the worker's directory: they work there, have a file of it open, or name it.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._since = ticks()  # spares the shell of a person who looks around there

    def rows(self, roots: Iterable[int] = ()) -> Iterator[Process]:
        """Yield the trees below ``roots``, and what else leaves traces."""
        for root in list(roots):
            yield from proctable.tree(root)
        yield from touching(self._directory, self._since)

    async def kill_all(self, roots: Collection[int] = ()) -> list[int]:
        """Stop and kill those processes until none is found; return what could not be killed."""
        quiet = 0
        for _ in range(_ROUNDS):
            found = send(self.rows(roots), signal.SIGSTOP)
            if found:
                send(self.rows(roots), signal.SIGKILL)
            quiet = 0 if found else quiet + 1
            if quiet == _QUIET:
                return []
            await asyncio.sleep(_PAUSE)
        return sorted({row.pid for row in self.rows(roots)})


async def settled(rows: Iterable[Process]) -> list[int]:
    """Wait until the processes, already killed, have ended; return those that have not within a bound."""
    left = proctable.alive(rows)
    for _ in range(_ROUNDS):
        if not left:
            break
        await asyncio.sleep(_PAUSE)
        left = proctable.alive(left)
    return [row.pid for row in left]


def send(rows: Iterable[Process], number: signal.Signals) -> list[Process]:
    """Send a signal to each process as it comes, unless it is gone; return the rows."""
    reached = []
    for row in rows:
        try:
            os.kill(row.pid, number)
        except ProcessLookupError:
            continue
        reached.append(row)
    return reached


def touching(directory: str, since: int = 0) -> Iterator[Process]:
    """Yield the processes that work in ``directory``, have a file of it open, or name it, newest first.

    This process and its ancestors are left out: the command line of a server usually names the directory.

    :param since: leave out what was started before, in the ticks of :attr:`Process.started`.
    """
    own = psutil.Process()
    spared = {own.pid, *(parent.pid for parent in own.parents())}
    for pid in sorted(psutil.pids(), reverse=True):
        row = None if pid in spared else proctable.read(pid)
        if row is not None and not row.ended and row.started >= since and _touches(row, directory):
            yield row


def ticks() -> int:
    """Return the present as :attr:`Process.started` would show it."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _directory_of(row: Process) -> str:
    """Return where ``/proc`` has the arguments and open files of a process; raise OSError when it is gone.

    The entry of a process whose first thread has ended is blank, and so is psutil's answer: it is below another thread.
    """
    if row.state not in proctable.ENDED:
        return f"/proc/{row.pid}"
    tasks = f"/proc/{row.pid}/task"
    return f"{tasks}/{max(os.listdir(tasks), key=int)}"


def _touches(row: Process, directory: str) -> bool:
    try:
        place = _directory_of(row)
        names = [os.readlink(f"{place}/cwd"), *_open_files(place)]
        if any(name == directory or name.startswith(directory + "/") for name in names):
            return True
        return any(directory.encode() in Path(place, name).read_bytes() for name in ("cmdline", "environ"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone meanwhile, or another user's: none of ours


def _open_files(place: str) -> Iterator[str]:
    for entry in os.listdir(f"{place}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"{place}/fd/{entry}")
