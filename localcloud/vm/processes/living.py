# SPDX-License-Identifier: Apache-2.0
"""Which processes of a local cloud are alive: the proof behind ``down``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from localcloud.vm.processes.process_mark import PROCESS_MARK


def find(pid: int) -> psutil.Process | None:
    """Return a living process; zombies are dead."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
    return process if is_alive(process) else None


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs still; a new process under its old id does not count."""
    try:
        # A process whose first thread has ended looks like a zombie while its other threads run.
        ended = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
        return process.is_running() and not ended
    except psutil.NoSuchProcess:
        return False


def known(pids: Iterable[int]) -> list[psutil.Process]:
    """Return those of some process ids that are alive."""
    return [process for pid in pids if (process := find(pid)) is not None]


def still_alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that are alive still."""
    return [process for process in processes if is_alive(process)]


def command_of(process: psutil.Process) -> str:
    """Return the command line of a process, for people; empty if it is gone or another user's."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def marked(state_dir: Path) -> list[psutil.Process]:
    """Return all living processes that belong to the cloud of a state directory, this one excepted.

    Each is found by the variable that all of them inherit, by a command line that names the directory of the VMs, or
    by a working directory below it, unless a person's shell stands there. A process with an emptied environment that
    has also changed its directory escapes; while the cloud answers, it names that one itself.
    """
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    return [process for process in others if is_alive(process) and _belongs(process, state_dir)]


def _belongs(process: psutil.Process, state_dir: Path) -> bool:
    machines = f"{state_dir}/vm/"
    if machines in command_of(process):
        return True
    try:
        stands_there = process.cwd().startswith(machines) and process.terminal() is None
        return stands_there or process.environ().get(PROCESS_MARK) == str(state_dir)
    except psutil.Error:
        return False
