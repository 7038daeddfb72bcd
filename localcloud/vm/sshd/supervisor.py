# SPDX-License-Identifier: Apache-2.0
"""First process of a worker: owns its process tree, on the orders that arrive on standard input.

It runs alone in a fresh interpreter, of the standard library only: importing psutil would add 23 ms of CPU to the 39 ms
that each worker's supervisor takes to start. As a *subreaper* it becomes the parent of every process that detaches
itself (nohup, setsid, double fork), so nothing leaves the tree; in the ``bwrap`` tier it is process 1 of a PID
namespace, with the same effect. Standard input is a socket whose other end only the local cloud holds: when that
process dies, however it dies, the socket ends and the tree is killed.

One order per line, one answer per line (``ok``, ``ok DETAIL`` or ``error TEXT``): ``listen``, ``alive``,
``refuse``, ``drop``, ``terminate``, ``freeze``, ``thaw``, ``kill``, ``startup``.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

from localcloud.vm.processes import proctable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PARENT_DIED = signal.SIGPWR
"""Asked of the kernel for the death of the parent; not TERM, which a user's ``kill -TERM -1`` would send as well."""

SSH_NAMES = frozenset({"sshd", "sshd-session", "sshd-auth"})
"""Kernel names of OpenSSH's server processes; since 9.8 a session is a program of its own."""

ROUNDS = 1000
"""Bound on the search for a fixpoint: reached only if processes are born faster than they can be stopped."""

PAUSE = 0.001
"""Seconds between two looks at the process table while signals take effect."""


class Supervisor:
    """Carries out orders on the tree below this process.

    :param argv: command line of the SSH server; it must stay in the foreground.
    :param environment: its environment.
    :param startup: command line of the startup script, may be empty.
    """

    def __init__(self, argv: list[str], environment: dict[str, str], startup: list[str]) -> None:
        self._argv = argv
        self._environment = environment
        self._startup = startup
        self._listener: int | None = None
        self._stopped: dict[int, proctable.Process] = {}
        self.orders: dict[str, Callable[[], str]] = {
            "listen": self.listen,
            "alive": self.alive,
            "refuse": self.refuse,
            "drop": self.drop,
            "terminate": self.terminate,
            "freeze": self.freeze,
            "thaw": self.thaw,
            "kill": self.kill,
            "startup": self.startup,
        }

    def startup(self) -> str:
        """Start the startup script, as the guest agent does when the machine has booted."""
        if self._startup:
            _spawn(self._startup, {})
        return ""

    def listen(self) -> str:
        """Start the SSH server, unless it runs."""
        if self._listener is None:
            self._listener = _spawn(self._argv, self._environment)
        return ""

    def alive(self) -> str:
        """Answer ``1`` while the SSH server accepts connections, else ``0``."""
        self.reap()
        return "0" if self._listener is None else "1"

    def refuse(self) -> str:
        """End the SSH server's listener; its sessions are processes of their own and live on."""
        while self._listener is not None:
            send(self._listener, signal.SIGKILL)
            self.reap()
            time.sleep(PAUSE)
        return ""

    def drop(self) -> str:
        """Kill the server processes of all sessions, so that the kernel closes their connections."""
        for row in list(self._below()):  # all of them first: the children of a killed one would go elsewhere
            if row.name in SSH_NAMES and row.pid != self._listener:
                send(row.pid, signal.SIGKILL)
        return ""

    def terminate(self) -> str:
        """Send SIGTERM to all but OpenSSH's own processes."""
        for row in list(self._below()):
            if row.name not in SSH_NAMES:
                send(row.pid, signal.SIGTERM)
        return ""

    def freeze(self) -> str:
        """Stop the tree: look and stop until two looks in a row find nothing new.

        A process that changes its pid every few milliseconds escapes a single pass. Once SIGSTOP is pending, the
        kernel refuses to fork, so a look without news means that no process is left that could make a new one.
        """
        quiet = 0
        for _ in range(ROUNDS):
            news = False
            for row in self._below():
                if row.state not in "Tt" and self._stopped.get(row.pid) != _key(row):
                    send(row.pid, signal.SIGSTOP)  # at once: it may be another process in a millisecond
                    self._stopped[row.pid] = _key(row)
                    news = True
            quiet = 0 if news else quiet + 1
            if quiet == 2:
                break
            time.sleep(PAUSE)
        return ""

    def thaw(self) -> str:
        """Continue what :meth:`freeze` stopped; what the user had stopped stays so."""
        for row in self._stopped.values():
            current = proctable.read(row.pid)
            if current and _key(current) == row:
                send(row.pid, signal.SIGCONT)
        self._stopped.clear()
        return ""

    def kill(self) -> str:
        """Kill the tree. Return when ``waitpid`` knows no child: as all orphans come here, none can be left."""
        self.freeze()
        while self.reap():
            for row in self._below():
                send(row.pid, signal.SIGKILL)
            time.sleep(PAUSE)
        return ""

    def reap(self) -> bool:
        """Collect dead children, for a zombie looks alive to many. Return whether any child is left."""
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if pid == self._listener:
                    self._listener = None
        except ChildProcessError:
            return False
        return True

    @staticmethod
    def _below() -> Iterator[proctable.Process]:
        return (row for row in proctable.descendants(os.getpid()) if not row.ended)


def _spawn(argv: list[str], environment: dict[str, str]) -> int:
    return os.posix_spawn(
        argv[0],
        argv,
        environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)],
        setsid=True,
        setsigmask=[],
        # What this process ignores (and SIGPIPE, which Python ignores) must not reach the users' commands.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM],
    )


def _key(row: proctable.Process) -> proctable.Process:
    """Leave of a row what does not change in the life of a process."""
    return row._replace(parent=0, state="", name="", threads=0)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone, or another user's (sudo), is passed over."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def prepare() -> socket.socket:
    """Make this process a subreaper that outlives stray signals; return what wakes it when a signal is in."""
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, int(PARENT_DIED))):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    inbox, outbox = socket.socketpair()
    outbox.setblocking(False)
    signal.set_wakeup_fd(outbox.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, PARENT_DIED):
        signal.signal(number, lambda *_: None)  # a handler, or the kernel would not wake us
    os.umask(0o022)
    return inbox


def answer(supervisor: Supervisor, order: str) -> str:
    """Carry out one order and return the line to send back."""
    action = supervisor.orders.get(order)
    if action is None:
        return f"error unknown order {order!r}"
    try:
        return f"ok {action()}".rstrip()
    except OSError as error:
        return f"error {order}: {error}"


def serve(supervisor: Supervisor, control: socket.socket, signals: socket.socket) -> None:
    """Answer orders until one of them is ``kill``, or until the local cloud is gone."""
    text = b""
    while True:
        ready = select.select([control, signals], [], [])[0]
        supervisor.reap()
        if signals in ready and PARENT_DIED in signals.recv(4096):
            return
        if control not in ready:
            continue
        received = control.recv(4096)
        *lines, text = (text + received).split(b"\n")
        for line in lines:
            control.sendall(answer(supervisor, line.decode()).encode() + b"\n")
        if not received or b"kill" in lines:
            return


def main() -> None:
    """Entry point: the SSH server's command line and environment are one JSON argument."""
    task = json.loads(sys.argv[1])
    signals = prepare()
    supervisor = Supervisor(task["argv"], task["environment"], task.get("startup", []))
    try:
        with socket.socket(fileno=os.dup(0)) as control:
            serve(supervisor, control, signals)
    finally:
        supervisor.kill()


if __name__ == "__main__":
    main()
