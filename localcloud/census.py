"""Which processes of a local cloud are alive: the proof behind ``down``. Reads ``/proc``, needs Linux."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localcloud.marks import MARK

_PROC = Path("/proc")
_DEAD = frozenset({"Z", "X"})


@dataclass(frozen=True)
class Process:
    """One living process.

    :param pid: its id.
    :param started: start time in clock ticks since boot; with the pid it is unique.
    :param command: its command line, for people.
    :param terminal: whether it hangs on a terminal, as a person's shell does.
    """

    pid: int
    started: int
    command: str
    terminal: bool


def find(pid: int) -> Process | None:
    """Return a living process; zombies are dead."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        command = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in _DEAD:
        return None
    text = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return Process(pid, int(fields[19]), text, terminal=fields[4] != "0")


def known(pids: Iterable[int]) -> list[Process]:
    """Return those of some process ids that are alive."""
    return [process for pid in pids if (process := find(pid)) is not None]


def still_alive(processes: Iterable[Process]) -> list[Process]:
    """Return those that are alive still; a new process under an old id does not count."""
    found = ((process, find(process.pid)) for process in processes)
    return [process for process, now in found if now is not None and now.started == process.started]


def marked(state_dir: Path) -> list[Process]:
    """Return all living processes that belong to the cloud of a state directory, this one excepted.

    They are told by the variable that all of them inherit, by a command line that names the directory of the VMs, or
    by a working directory below it, unless a person's shell stands there. A process with an emptied environment that
    has also changed its directory escapes; while the cloud answers, it names that one itself.
    """
    return [process for process in _all() if _belongs(process, state_dir)]


def _all() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and (process := find(int(entry.name))) is not None:
            yield process


def _belongs(process: Process, state_dir: Path) -> bool:
    machines = f"{state_dir}/vm/"
    if machines in process.command:
        return True
    try:
        environment = (_PROC / str(process.pid) / "environ").read_bytes()
        directory = str((_PROC / str(process.pid) / "cwd").readlink())
    except OSError:
        return False
    stands_there = directory.startswith(machines) and not process.terminal
    return stands_there or f"{MARK}={state_dir}".encode() in environment.split(b"\0")
