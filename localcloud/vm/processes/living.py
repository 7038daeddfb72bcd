"""Which processes of a local cloud are alive: the proof behind ``down``. Reads ``/proc``, needs Linux."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localcloud.vm.processes import proctable
from localcloud.vm.processes.process_mark import PROCESS_MARK


@dataclass(frozen=True)
class Process:
    """One living process.

    :param row: what the process table says of it.
    :param command: its command line, for people.
    """

    row: proctable.Process
    command: str

    @property
    def pid(self) -> int:
        """Its id."""
        return self.row.pid


def find(pid: int) -> Process | None:
    """Return a living process; zombies are dead."""
    row = proctable.read(pid)
    return None if row is None else _living(row)


def _living(row: proctable.Process) -> Process | None:
    try:
        command = Path(f"/proc/{row.pid}/cmdline").read_bytes()
    except OSError:
        return None
    return None if row.ended else Process(row, command.replace(b"\0", b" ").decode(errors="replace").strip())


def known(pids: Iterable[int]) -> list[Process]:
    """Return those of some process ids that are alive."""
    return [process for pid in pids if (process := find(pid)) is not None]


def still_alive(processes: Iterable[Process]) -> list[Process]:
    """Return those that are alive still; a new process under an old id does not count."""
    return [process for process in processes if proctable.alive([process.row])]


def marked(state_dir: Path) -> list[Process]:
    """Return all living processes that belong to the cloud of a state directory, this one excepted.

    They are told by the variable that all of them inherit, by a command line that names the directory of the VMs, or
    by a working directory below it, unless a person's shell stands there. A process with an emptied environment that
    has also changed its directory escapes; while the cloud answers, it names that one itself.
    """
    found = (_living(row) for row in proctable.snapshot().values() if row.pid != os.getpid())
    return [process for process in found if process is not None and _belongs(process, state_dir)]


def _belongs(process: Process, state_dir: Path) -> bool:
    machines = f"{state_dir}/vm/"
    if machines in process.command:
        return True
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        directory = os.readlink(f"/proc/{process.pid}/cwd")
    except OSError:
        return False
    stands_there = directory.startswith(machines) and not process.row.terminal
    return stands_there or f"{PROCESS_MARK}={state_dir}".encode() in environment.split(b"\0")
