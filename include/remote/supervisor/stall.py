"""Whether a command still does something: its log, its progress file, its output and its checkpoints tell."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable, Sequence, Tuple

_LOOKS = 10  # in the time after which a command counts as stalled
_LONGEST_PAUSE_SECS = 60.0

Sight = Tuple[int, int, int, int]


class Stall:
    """Notices that nothing has changed for so long.

    :param limit: seconds that are too long; 0 switches it off.
    :param log: a file that grows.
    :param roots: directories, of whose files any may change.
    :param clock: seconds that only grow.
    """

    def __init__(
        self, limit: float, log: Path, roots: Sequence[Path], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = 0.0  # how long nothing had changed when it was too long
        self._clock = clock
        self._limit = limit
        self._log = log
        self._roots = roots
        self._pause = min(self._limit / _LOOKS, _LONGEST_PAUSE_SECS)
        self._seen: Sight | None = None
        self._changed_at = 0.0
        self._next_look = 0.0

    @property
    def stalled(self) -> bool:
        """Whether it was too long."""
        return self.seconds > 0

    def begin(self) -> None:
        """Count from now: a new step of the job has been started."""
        self._seen, self._next_look = None, 0.0

    def attend(self) -> bool:
        """Look if it is time to; return whether the command has just been found stalled."""
        now = self._clock()
        if not self._limit or self.stalled or now < self._next_look:
            return False
        self._next_look = now + self._pause
        seen = self._look()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        elif now - self._changed_at >= self._limit:
            self.seconds = now - self._changed_at
        return self.stalled

    def wait(self) -> float:
        """Seconds until the next look."""
        if not self._limit or self.stalled:
            return _LONGEST_PAUSE_SECS
        return max(self._next_look - self._clock(), 0.0)

    def _look(self) -> Sight:
        """Any file that is added, removed, written or touched changes what is seen; progress.json is in the output."""
        count, size, newest = 0, 0, 0
        for root in self._roots:
            for directory, _, names in os.walk(str(root)):
                for name in names:
                    try:
                        found = os.lstat(os.path.join(directory, name))
                    except FileNotFoundError:
                        continue  # it goes just now, and will be missed at the next look
                    count, size, newest = count + 1, size + found.st_size, max(newest, found.st_mtime_ns)
        return self._log.stat().st_size if self._log.exists() else 0, count, size, newest
