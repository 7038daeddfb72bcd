"""The process table of this machine, read from ``/proc``. Standard library only: the supervisor imports it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ENDED = frozenset("ZX")
"""States of a process that runs no more: a zombie still answers ``kill -0``, so the state has to be asked for."""

_STATE, _PPID, _TERMINAL, _THREADS, _STARTED = 0, 1, 4, 17, 19
"""Positions in ``/proc/PID/stat`` after the name, see proc_pid_stat(5)."""


class Process(NamedTuple):
    """One row.

    :param pid: process id.
    :param parent: process id of the parent.
    :param state: one letter, for example ``R``, ``S``, ``T``, ``Z``.
    :param name: the kernel's short name (15 bytes), which ``setproctitle`` leaves alone.
    :param started: clock ticks since boot; with the pid it names a process for good.
    :param threads: number of its threads, an ended first one included.
    :param terminal: whether it hangs on a terminal, as a person's shell does.
    """

    pid: int
    parent: int
    state: str
    name: str
    started: int
    threads: int
    terminal: bool

    @property
    def ended(self) -> bool:
        """True for a zombie, unless only its first thread has ended and others work on."""
        return self.state in ENDED and self.threads <= 1


def read(pid: int) -> Process | None:
    """Return the row of one process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and brackets itself: only the last bracket ends it.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    name = head.partition("(")[2]
    return Process(
        pid=pid,
        parent=int(fields[_PPID]),
        state=fields[_STATE],
        name=name,
        started=int(fields[_STARTED]),
        threads=int(fields[_THREADS]),
        terminal=fields[_TERMINAL] != "0",
    )


def snapshot() -> dict[int, Process]:
    """Return all processes; one that is born or dies meanwhile may be missing."""
    rows = (read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return {row.pid: row for row in rows if row is not None}


def descendants(root: int) -> Iterator[Process]:
    """Yield the processes below ``root``, zombies included, each before what is below it.

    The kernel lists the children of a process directly, so a walk sees a small tree in well under a millisecond
    whatever else the machine runs; and a caller that stops each process as it comes finds its list of children
    final. Kernels without such lists (CONFIG_PROC_CHILDREN) cost a look at all processes.
    """
    listed = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
    find = _children if listed else _Family().children
    pending = [root]
    while pending:
        for pid in find(pending.pop()):
            row = read(pid)
            if row is not None:
                yield row
                pending.append(pid)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _content(f"/proc/{pid}/task/{task}/children").split())
    except (FileNotFoundError, ProcessLookupError):
        pass  # gone meanwhile: what it had has gone up to an ancestor
    return found


class _Family:
    """Children by parent, from one look at all processes."""

    def __init__(self) -> None:
        self._by_parent: dict[int, list[int]] = {}
        for row in snapshot().values():
            self._by_parent.setdefault(row.parent, []).append(row.pid)

    def children(self, pid: int) -> list[int]:
        return self._by_parent.get(pid, [])


def tree(root: int) -> list[Process]:
    """Return ``root`` and what is below it, without zombies."""
    top = read(root)
    rows = [] if top is None else [top, *descendants(root)]
    return [row for row in rows if not row.ended]


def alive(rows: Iterable[Process]) -> list[Process]:
    """Return those of ``rows`` that still run; a new process with an old pid is not one of them."""
    now = ((row, read(row.pid)) for row in rows)
    return [row for row, current in now if current and current.started == row.started and not current.ended]


def touching(directory: str, since: int = 0) -> Iterator[Process]:
    """Yield the processes that work in ``directory``, have a file of it open, or name it, newest first.

    This process and its ancestors are left out: a server is usually told the directory on its command line.

    :param since: leave out what was started before, in the ticks of :attr:`Process.started`.
    """
    spared = set(_ancestry(os.getpid()))
    for pid in sorted((int(entry) for entry in os.listdir("/proc") if entry.isdigit()), reverse=True):
        row = None if pid in spared else read(pid)
        if row is not None and not row.ended and row.started >= since and _touches(row, directory):
            yield row


def ticks() -> int:
    """Return the present as :attr:`Process.started` would show it."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _ancestry(pid: int) -> Iterator[int]:
    row = read(pid)
    while row is not None:
        yield row.pid
        row = read(row.parent)


def directory_of(row: Process) -> str:
    """Return where ``/proc`` tells the arguments and the like of a process; raise OSError when it is gone.

    The entry of a process whose first thread has ended is blank: one of the other threads knows.
    """
    if row.state not in ENDED:
        return f"/proc/{row.pid}"
    tasks = f"/proc/{row.pid}/task"
    return f"{tasks}/{max(os.listdir(tasks), key=int)}"


def _touches(row: Process, directory: str) -> bool:
    try:
        place = directory_of(row)
        names = [os.readlink(f"{place}/cwd"), *_open_files(place)]
        if any(name == directory or name.startswith(directory + "/") for name in names):
            return True
        return any(directory.encode() in _content(f"{place}/{name}") for name in ("cmdline", "environ"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone meanwhile, or another user's: none of ours


def _open_files(place: str) -> Iterator[str]:
    for entry in os.listdir(f"{place}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"{place}/fd/{entry}")


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
