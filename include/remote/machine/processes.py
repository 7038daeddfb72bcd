# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine as /proc shows them, and how to end a tree of them without touching any other."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Callable, List, NamedTuple

import protocol

_PROC = Path("/proc")
_ROUNDS = 20
_FREEZE_ROUNDS = 50
_KILL_ROUNDS = 5


class Process(NamedTuple):
    """One line of ``/proc/<pid>/stat``.

    :param start_time: clock ticks between boot and start; with the pid it names a process for good.
    """

    pid: int
    state: str
    parent: int
    start_time: int

    @property
    def alive(self) -> bool:
        """Whether it runs: a zombie answers ``kill -0`` and keeps its start time, but does not."""
        return self.state not in "ZXx"


Finder = Callable[[], List[Process]]


def read(pid: int) -> Process | None:
    """Return the process of this number, None if there is none."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return Process(pid, fields[0].decode("ascii"), int(fields[1]), int(fields[19]))


def _stat(pid: int) -> list[bytes]:
    """Return what follows the name of the program, which stands in parentheses and may hold blanks and parentheses."""
    text = (_PROC / str(pid) / "stat").read_bytes()
    return text[text.rindex(b")") + 2 :].split()


def effort(pid: int) -> int:
    """Return a number that grows while a process computes or reads: 100 a CPU second, 16 a MiB, 1 a page from disk."""
    try:
        fields = _stat(pid)
        read = (_PROC / str(pid) / "io").read_bytes().split()[1]
    except OSError:
        return 0
    ticks = (int(fields[11]) + int(fields[12])) * 100 // os.sysconf("SC_CLK_TCK")
    return ticks + int(fields[9]) + (int(read) >> 16)


def boot_id() -> str:
    """Return the identifier of this boot of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def is_alive(pid: object, start_time: object) -> bool:
    """Tell whether this very process runs: its number alone may have been given to another one."""
    if not isinstance(pid, int) or pid <= 1:
        return False
    process = read(pid)
    return process is not None and process.start_time == start_time and process.alive


def list_all() -> list[Process]:
    """Return all live processes that /proc shows.

    Reading takes a while, and a process may fork and die meanwhile: its child is in no list made before. So processes
    that are new since the last list are read as well, until there are none. In ascending order a parent is read before
    its child; a child of a dead parent has been handed over to the next one by then.
    """
    found: dict[int, Process | None] = {}
    for _ in range(_ROUNDS):
        new = sorted({int(name) for name in os.listdir(str(_PROC)) if name.isdigit()} - set(found))
        if not new:
            break
        found.update((pid, read(pid)) for pid in new)
    return [process for process in found.values() if process is not None and process.alive]


def descendants(root: int) -> list[Process]:
    """Return all live processes below one, which is not among them."""
    children: dict[int, list[Process]] = {}
    for process in list_all():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(process.pid for process in below)
    return found


def find_marked(attempt_dir: str) -> list[Process]:
    """Return the live processes that were started for an attempt and did not empty their environment.

    The environment of another user's process is not readable, so such a process never counts.
    """
    marker = (protocol.MARKER + "=" + attempt_dir).encode()
    return [process for process in list_all() if process.pid != os.getpid() and marker in _environment(process.pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def send(process: Process, number: int) -> bool:
    """Signal a process if it is still the one that was looked up. Pid 1 and below are never signalled."""
    if process.pid <= 1 or process.pid == os.getpid() or not is_alive(process.pid, process.start_time):
        return False
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def terminate(processes: list[Process]) -> None:
    """Ask processes to end; CONT lets a stopped one hear it."""
    for process in processes:
        send(process, signal.SIGTERM)
        send(process, signal.SIGCONT)


def kill(find: Finder) -> int:
    """Kill everything ``find`` returns; returns how many processes that were.

    They are frozen first, round after round until no new one appears: a process that forks faster than it is
    killed would otherwise always leave a child.
    """
    killed: set[int] = set()
    for _ in range(_KILL_ROUNDS):
        frozen = _freeze(find)
        killed.update(process.pid for process in frozen if send(process, signal.SIGKILL))
        if not frozen:
            break
    return len(killed)


def _freeze(find: Finder) -> list[Process]:
    frozen: dict[int, Process] = {}
    for _ in range(_FREEZE_ROUNDS):
        new = [process for process in find() if process.pid not in frozen]
        if not new:
            break
        for process in new:
            send(process, signal.SIGSTOP)
            frozen[process.pid] = process
    return list(frozen.values())


def wait_until_none(find: Finder, seconds: float, poll: float = 0.05) -> list[Process]:
    """Wait until ``find`` returns nothing, at most so long; returns what is left.

    :param poll: seconds between two looks.
    """
    end = time.monotonic() + seconds
    left = find()
    while left and time.monotonic() < end:
        time.sleep(poll)
        left = find()
    return left
