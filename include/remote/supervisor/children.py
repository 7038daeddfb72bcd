# SPDX-License-Identifier: Apache-2.0
"""The processes below the supervisor: reaped when they end, found while they live, ended when the run has ended."""

from __future__ import annotations

import os

from machine import processes
from supervisor.mirror_process import MirrorProcess

_LEFTOVER_SECS = 2.0  # for leftovers, from TERM to KILL
_UNKILLABLE_SECS = 5.0  # a process stuck in the kernel must not keep the result from being recorded


class Children:
    """Tells the command, with all that it has started, from the mirror.

    :param mirror: notes its own end.
    """

    def __init__(self, mirror: MirrorProcess) -> None:
        self.status: int | None = None  # wait status of the step, None while it runs
        self._mirror = mirror
        self._step: int | None = None

    def watch(self, step: int) -> None:
        """Note whose status is wanted from now on.

        :param step: process id.
        """
        self._step, self.status = step, None

    def reap(self) -> None:
        """Reap every dead child, ours and adopted: a zombie would look alive for ever."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._step:
                self.status = status
            self._mirror.note_exit(pid, status)

    def of_command(self) -> list[processes.Process]:
        """Return all processes of the command; the mirror is not one of them."""
        self.reap()
        return [process for process in processes.descendants(os.getpid()) if process.pid != self._mirror.pid]

    def end_leftovers(self) -> int:
        """End what the command left behind, because files must not change while they are copied; return how many."""
        left = self.of_command()
        processes.terminate(left)
        if processes.wait_until_none(self.of_command, _LEFTOVER_SECS):
            processes.kill(self.of_command)
            processes.wait_until_none(self.of_command, _UNKILLABLE_SECS)
        return len(left)
