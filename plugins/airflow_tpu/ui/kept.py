# SPDX-License-Identifier: Apache-2.0
"""A value that is read again when it is old, or when what it is about has changed: a page may be open all day."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """What was read last.

    :param max_age: seconds after which it is read again.
    :param clock: seconds, monotonic.
    """

    def __init__(self, max_age: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_age, self._clock = max_age, clock
        self._last: tuple[float, object, T] | None = None

    def get(self, read: Callable[[], T], about: object = None) -> T:
        """Return what was read last, or read; a failure is not kept.

        :param read: reads it.
        :param about: what it depends on; another one makes it old.
        """
        if self.is_old(about) or self._last is None:
            now = self._clock()
            self._last = (now, about, read())
        return self._last[2]

    def is_old(self, about: object = None) -> bool:
        """Whether the next :meth:`get` reads."""
        return self._last is None or self._clock() - self._last[0] >= self._max_age or self._last[1] != about
