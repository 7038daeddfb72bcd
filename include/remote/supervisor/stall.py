# SPDX-License-Identifier: Apache-2.0
"""Detects a stalled command: neither its log nor its progress file nor its output nor its checkpoints change."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable, Sequence, Tuple

_CHECKS = 10  # in the time after which a command counts as stalled
_LONGEST_PAUSE_SECS = 60.0

Snapshot = Tuple[int, int, int, int]


class StallDetector:
    """Notices that nothing has changed for too long.

    :param limit: seconds without a change that count as a stall; 0 switches it off.
    :param log: of the command.
    :param roots: directories whose files are compared.
    :param clock: seconds that only grow.
    """

    def __init__(
        self, limit: float, log: Path, roots: Sequence[Path], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = 0.0  # without a change when the stall was noticed
        self._clock = clock
        self._limit = limit
        self._log = log
        self._roots = roots
        self._pause = min(self._limit / _CHECKS, _LONGEST_PAUSE_SECS)
        self._seen: Snapshot | None = None
        self._changed_at = 0.0
        self._next_check_at = 0.0

    @property
    def stalled(self) -> bool:
        """Whether a stall has been noticed."""
        return self.seconds > 0

    def restart(self) -> None:
        """Count from now: a new step of the job has been started."""
        self._seen, self._next_check_at = None, 0.0

    def check(self) -> bool:
        """Compare, if that is due; return whether the command has just been found stalled."""
        now = self._clock()
        if not self._limit or self.stalled or now < self._next_check_at:
            return False
        self._next_check_at = now + self._pause
        seen = self._snapshot()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        elif now - self._changed_at >= self._limit:
            self.seconds = now - self._changed_at
        return self.stalled

    def next_check(self) -> float:
        """Return the seconds until the next comparison."""
        if not self._limit or self.stalled:
            return _LONGEST_PAUSE_SECS
        return max(self._next_check_at - self._clock(), 0.0)

    def _snapshot(self) -> Snapshot:
        """Return what any added, removed, written or touched file changes; progress.json is in the output."""
        count, size, newest = 0, 0, 0
        for root in self._roots:
            for directory, _, names in os.walk(str(root)):
                for name in names:
                    try:
                        found = os.lstat(os.path.join(directory, name))
                    except FileNotFoundError:
                        continue  # removed just now: the next snapshot differs
                    count, size, newest = count + 1, size + found.st_size, max(newest, found.st_mtime_ns)
        return self._log.stat().st_size if self._log.exists() else 0, count, size, newest
