"""The process table of this machine, read from ``/proc``. Standard library only: the supervisor imports it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

ENDED = frozenset("ZX")
"""States of a process that runs no more: a zombie still answers ``kill -0``, so the state has to be asked for."""

_PPID, _STATE, _STARTED = 1, 0, 19
"""Positions in ``/proc/PID/stat`` after the name, see proc_pid_stat(5)."""


class Process(NamedTuple):
    """One row.

    :param pid: process id.
    :param parent: process id of the parent.
    :param state: one letter, for example ``R``, ``S``, ``T``, ``Z``.
    :param name: the kernel's short name (15 bytes), which ``setproctitle`` leaves alone.
    :param started: clock ticks since boot; with the pid it names a process for good.
    """

    pid: int
    parent: int
    state: str
    name: str
    started: int

    @property
    def ended(self) -> bool:
        """True for a zombie."""
        return self.state in ENDED


def read(pid: int) -> Process | None:
    """Returns the row of one process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and brackets itself: only the last bracket ends it.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(pid, int(fields[_PPID]), fields[_STATE], head.partition("(")[2], int(fields[_STARTED]))


def snapshot() -> dict[int, Process]:
    """Returns all processes; one that is born or dies meanwhile may be missing."""
    rows = (read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return {row.pid: row for row in rows if row is not None}


def descendants(root: int) -> list[Process]:
    """Returns the processes below ``root``, zombies included, parents first."""
    children: dict[int, list[Process]] = {}
    for row in snapshot().values():
        children.setdefault(row.parent, []).append(row)
    found: list[Process] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += [row.pid for row in below]
    return found


def tree(root: int) -> list[Process]:
    """Returns ``root`` and what is below it, without zombies."""
    top = read(root)
    rows = [] if top is None else [top, *descendants(root)]
    return [row for row in rows if not row.ended]


def alive(rows: Iterable[Process]) -> list[Process]:
    """Returns those of ``rows`` that still run; a new process with an old pid is not one of them."""
    now = ((row, read(row.pid)) for row in rows)
    return [row for row, current in now if current and current.started == row.started and not current.ended]


def touching(directory: str) -> list[Process]:
    """Returns the processes that work in ``directory`` or name it in their arguments or environment.

    This process and its ancestors are left out: a server is usually told the directory on its command line.
    """
    table = snapshot()
    spared = set(_ancestry(os.getpid(), table))
    return [row for row in table.values() if row.pid not in spared and not row.ended and _touches(row.pid, directory)]


def _ancestry(pid: int, table: dict[int, Process]) -> Iterable[int]:
    while pid in table:
        yield pid
        pid = table[pid].parent


def _touches(pid: int, directory: str) -> bool:
    try:
        cwd = os.readlink(f"/proc/{pid}/cwd")
        if cwd == directory or cwd.startswith(directory + "/"):
            return True
        return any(directory.encode() in _content(f"/proc/{pid}/{name}") for name in ("cmdline", "environ"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone meanwhile, or another user's: none of ours


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
