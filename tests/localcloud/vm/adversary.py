# SPDX-License-Identifier: Apache-2.0
"""Processes that try to outlive their TPU VM. Run as ``python adversary.py KIND``, standard library only.

Each holds a lock on the file ``held-KIND`` of the directory where it was started, and so do all its forks: the lock
is free exactly when the last of them is dead. It announces itself by a file ``started-KIND``.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

EXIT_THREAD = {"x86_64": 60, "aarch64": 93}
"""Number of the system call ``exit``, which ends the calling thread only."""

KINDS: dict[str, Callable[[], None]] = {}


def kind(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a way to escape under its function's name."""
    KINDS[function.__name__] = function
    return function


def announce() -> None:
    """Tells that this process has done what it can to escape."""
    Path(f"started-{sys.argv[1]}").touch()


def wait() -> None:
    """Announces itself, then lives for ten minutes."""
    announce()
    threading.Event().wait(600)


@kind
def nohup() -> None:
    """Ignores the hang-up of its terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wait()


@kind
def setsid() -> None:
    """Leaves session and process group."""
    os.setsid()
    wait()


@kind
def double_fork() -> None:
    """Becomes an orphan in a session of its own."""
    os.setsid()
    if os.fork():
        os._exit(0)
    wait()


@kind
def empty_environment() -> None:
    """Becomes an orphan without environment, whose arguments name no directory, in the root directory."""
    if "HOME" in os.environ:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execve(sys.executable, [sys.executable, "-I", *sys.argv], {})
    announce()
    os.chdir("/")
    threading.Event().wait(600)


@kind
def respawner() -> None:
    """Starts a new session as soon as the last one has ended, every few milliseconds."""
    os.setsid()
    announce()
    while True:
        child = os.fork()
        if child == 0:
            os.setsid()
            threading.Event().wait(0.002)
            os._exit(0)
        os.waitpid(child, 0)


@kind
def pid_hopper() -> None:
    """Changes its pid every few milliseconds."""
    os.setsid()
    announce()
    while True:
        if os.fork():
            os._exit(0)
        threading.Event().wait(0.005)


@kind
def deaf() -> None:
    """Ignores every signal that can be ignored."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    wait()


@kind
def stopped() -> None:
    """Stops itself; it would take SIGTERM only after SIGCONT."""
    announce()
    os.kill(os.getpid(), signal.SIGSTOP)
    wait()


@kind
def headless() -> None:
    """Ends its first thread, so that the process looks like a zombie while another thread works on."""
    working = threading.Event()

    def work() -> None:
        announce()
        working.set()
        threading.Event().wait(600)

    threading.Thread(target=work).start()
    working.wait()
    ctypes.CDLL(None).syscall(EXIT_THREAD[platform.machine()], 0)


@kind
def crowd() -> None:
    """Is twenty processes, each in a session of its own."""
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            threading.Event().wait(600)
    wait()


def hold() -> None:
    """Takes the lock, in a way that forks and executed programs inherit."""
    lock = os.open(f"held-{sys.argv[1]}", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)


if __name__ == "__main__":
    if "HOME" in os.environ:
        hold()
    KINDS[sys.argv[1]]()
