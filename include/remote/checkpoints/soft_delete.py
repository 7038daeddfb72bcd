# SPDX-License-Identifier: Apache-2.0
"""What removed checkpoints continue to cost in a bucket that keeps deleted objects, as lines of the run's log."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

_GB = 1e9  # bytes
_MORE = 10  # times what was told last is worth another line
_DAY_SECS = 86400.0


class SoftDelete:
    """Counts the bytes of removed checkpoints, which the bucket keeps and bills for some time.

    :param job: has ``soft_delete_secs``, 0 for a bucket that keeps nothing, and ``deadline``.
    :param clock: gives the Unix time.
    """

    def __init__(self, job: dict[str, Any], clock: Callable[[], float] = time.time) -> None:
        self._kept_secs = float(job.get("soft_delete_secs") or 0)
        self._deadline = job.get("deadline")
        self._clock = clock
        self._began = clock()
        self._total = self._told = 0

    def add(self, removed: int) -> Optional[str]:
        """Count bytes that were removed; return a line at the first, and whenever they have become ten times as many.

        :param removed: bytes.
        """
        self._total += removed
        if not self._kept_secs or not self._total or self._total < _MORE * self._told:
            return None
        self._told = self._total
        return self._line() + self._forecast()

    def total(self) -> Optional[str]:
        """Return the last line, None if nothing was removed or is kept."""
        return self._line() if self._kept_secs and self._total else None

    def _line(self) -> str:
        kept = "the bucket keeps removed checkpoints for %.3g days and bills them as before" % (
            self._kept_secs / _DAY_SECS
        )
        return "%s (soft delete): %.3g GB so far" % (kept, self._total / _GB)

    def _forecast(self) -> str:
        now = self._clock()
        if self._deadline is None or now <= self._began:
            return ""
        more = self._total / (now - self._began) * max(0.0, float(self._deadline) - now)
        return ", about %.3g GB by the deadline at this pace; save less often, or switch soft delete off" % (
            (self._total + more) / _GB
        )
