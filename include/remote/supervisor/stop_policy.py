"""When a command is asked to end, and when it is no longer asked."""

from __future__ import annotations

import time
from typing import Any

import protocol

from machine import heartbeat, processes
from machine.run_dir import RunDir

_LONGEST_WAIT_SECS = 60.0  # a stepped clock moves the deadline; look again now and then
_KILL_AGAIN_SECS = 1.0


class Stopping:
    """When and how hard the command is asked to end.

    :param run: where the stop request and the stop file are.
    :param job: gives the usual grace and the deadline (Unix seconds, or None).
    """

    def __init__(self, run: RunDir, job: dict[str, Any]) -> None:
        self.requested = False
        self.by_command = False  # not by whoever ends all processes of a machine, as its shutdown does
        self.past_deadline = False
        self._run = run
        self._job = job
        self._grace = float(job.get("grace_secs", 30.0))
        self._deadline = heartbeat.deadline(run, job)
        self._ended = False
        self._asked = False
        self._kill_at: float | None = None

    @property
    def begun(self) -> bool:
        """Whether the command is being stopped, for whatever reason."""
        return self._asked or self.requested or self.past_deadline or self._ended

    def ask(self) -> None:
        """Note that somebody wants the run to stop: the stop command, or an init process at shutdown."""
        self._asked = True

    def end(self, find: processes.Finder) -> None:
        """Stop the command for a reason of the supervisor's own; once more changes nothing."""
        if not self._ended:
            self._ended = True
            self._begin(self._grace, find)

    def _deadline_passes(self) -> bool:
        """An extension is looked for when it is needed: until then it changes nothing."""
        if self._deadline is None or self.past_deadline or time.time() < self._deadline:
            return False
        self._deadline = heartbeat.deadline(self._run, self._job)
        return self._deadline is not None and time.time() >= self._deadline

    def attend(self, find: processes.Finder) -> None:
        """Do what is due now."""
        if self._deadline_passes():
            self.past_deadline = True
            self._begin(self._grace, find)
        if self._asked:
            self._asked, self.requested = False, True
            request = self._run.read(protocol.STOP_REQUEST_FILE) or {}
            self.by_command = self.by_command or bool(request)
            self._begin(float(request.get("grace_secs", self._grace)), find)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            processes.kill(find)
            self._kill_at = time.monotonic() + _KILL_AGAIN_SECS

    def _begin(self, grace: float, find: processes.Finder) -> None:
        """A second request can only shorten the grace of the first."""
        found = find()
        self._run.stop_file.touch()
        processes.terminate(found)
        kill_at = time.monotonic() + max(grace, 0.0)
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def left(self) -> float:
        """Seconds of grace that are left; all of it while nobody asks."""
        return self._grace if self._kill_at is None else self._kill_at - time.monotonic()

    def longest_wait(self) -> float:
        """Seconds until something may be due."""
        waits = [_LONGEST_WAIT_SECS]
        if self._asked:
            waits.append(0.0)
        if self._deadline is not None and not self.past_deadline:
            waits.append(self._deadline - time.time())
        if self._kill_at is not None:
            waits.append(self._kill_at - time.monotonic())
        return max(min(waits), 0.0)
