# SPDX-License-Identifier: Apache-2.0
"""The upload of the last checkpoint, after the command has ended: as long as grace is left, and a moment if none is."""

from __future__ import annotations

import signal
import time
from typing import Callable

from machine import processes
from supervisor.children import Children
from supervisor.mirror_process import MirrorProcess
from supervisor.stop_policy import StopPolicy

_LAST_PUSH_SECS = 2.0  # for the last checkpoint when the grace is used up
_LAST_PUSH_TRIES = 3  # when the mirror itself is killed, of a full memory say


class LastPush:
    """Knows how long the mirror may still take.

    :param mirror: uploads.
    :param children: reaped while it does.
    :param stop_policy: gives the grace.
    :param sleep: waits so many seconds, or until a signal comes.
    """

    def __init__(
        self, mirror: MirrorProcess, children: Children, stop_policy: StopPolicy, sleep: Callable[[float], None]
    ) -> None:
        self._mirror = mirror
        self._children = children
        self._stop_policy = stop_policy
        self._sleep = sleep

    def run(self, trusted: bool) -> bool:
        """Have the last checkpoint uploaded, by another mirror if one is killed meanwhile; return whether it is safe.

        :param trusted: False if the command was killed, perhaps while it wrote.
        """
        for _ in range(_LAST_PUSH_TRIES):
            self._mirror.finish(trusted)
            self._wait()
            if not self._mirror.killed:
                break
        return not self._mirror.unfinished

    def _wait(self) -> None:
        """Wait for the mirror, then kill it.

        A command that was not stopped has the time until its deadline while its checkpoint travels.
        """
        self._children.reap()
        end = self._end()
        while self._mirror.pid and time.monotonic() < end:
            self._sleep(min(end - time.monotonic(), self._stop_policy.next_due(), _LAST_PUSH_SECS))
            self._children.reap()
            self._stop_policy.apply(list)
            travels = not self._stop_policy.stopping and self._mirror.is_well
            end = self._end() if travels else min(end, self._end())
        self._kill()

    def _end(self) -> float:
        return time.monotonic() + max(self._stop_policy.grace_left(), _LAST_PUSH_SECS)

    def _kill(self) -> None:
        mirror = processes.read(self._mirror.pid)
        if self._mirror.pid and mirror is not None:
            processes.send(mirror, signal.SIGKILL)
