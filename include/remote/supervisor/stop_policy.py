# SPDX-License-Identifier: Apache-2.0
"""When the command is asked to end, and when it is killed."""

from __future__ import annotations

import time
from typing import Any

import protocol

from machine import deadline, processes
from machine.run_dir import RunDir

_LONGEST_WAIT_SECS = 60.0  # a stepped clock moves the deadline
_KILL_AGAIN_SECS = 1.0


class StopPolicy:
    """Decides when the command gets SIGTERM and when SIGKILL.

    :param run: where the stop request and the stop file are.
    :param job: gives the usual grace and the deadline (Unix seconds, or None).
    """

    def __init__(self, run: RunDir, job: dict[str, Any]) -> None:
        self.requested = False
        self.by_command = False  # by the stop command, not by the shutdown of the machine
        self.past_deadline = False
        self._run = run
        self._job = job
        self._grace = float(job.get("grace_secs", protocol.GRACE_SECS))
        self._deadline = deadline.current(run, job)
        self._stopped = False
        self._pending = False
        self._kill_at: float | None = None

    @property
    def stopping(self) -> bool:
        """Whether the command is being stopped, whatever the reason."""
        return self._pending or self.requested or self.past_deadline or self._stopped

    def request(self) -> None:
        """Record a request to stop: of the stop command, or of an init process at shutdown."""
        self._pending = True

    def stop(self, find: processes.Finder) -> None:
        """Stop the command for a reason of the supervisor's own; a second call changes nothing."""
        if not self._stopped:
            self._stopped = True
            self._terminate(self._grace, find)

    def _deadline_passes(self) -> bool:
        """Look for an extension only when the deadline has passed: until then it changes nothing."""
        if self._deadline is None or self.past_deadline or time.time() < self._deadline:
            return False
        self._deadline = deadline.current(self._run, self._job)
        return self._deadline is not None and time.time() >= self._deadline

    def apply(self, find: processes.Finder) -> None:
        """Send the signals that are due now."""
        if self._deadline_passes():
            self.past_deadline = True
            self._terminate(self._grace, find)
        self.apply_request(find)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            processes.kill(find)
            self._kill_at = time.monotonic() + _KILL_AGAIN_SECS

    def apply_request(self, find: processes.Finder) -> None:
        """Act upon a request to stop, also one that came together with the command's end."""
        if self._pending:
            self._pending, self.requested = False, True
            request = self._run.read(protocol.STOP_REQUEST_FILE) or {}
            self.by_command = self.by_command or bool(request)
            self._terminate(float(request.get("grace_secs", self._grace)), find)

    def _terminate(self, grace: float, find: processes.Finder) -> None:
        """A second request can only shorten the grace of the first."""
        found = find()
        self._run.request_stop()
        processes.terminate(found)
        kill_at = time.monotonic() + max(grace, 0.0)
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def grace_left(self) -> float:
        """Return the seconds of grace that are left; all of them while the command is not being stopped."""
        return self._grace if self._kill_at is None else self._kill_at - time.monotonic()

    def next_due(self) -> float:
        """Return the seconds until :meth:`apply` may have something to do."""
        waits = [_LONGEST_WAIT_SECS]
        if self._pending:
            waits.append(0.0)
        if self._deadline is not None and not self.past_deadline:
            waits.append(self._deadline - time.time())
        if self._kill_at is not None:
            waits.append(self._kill_at - time.monotonic())
        return max(min(waits), 0.0)
