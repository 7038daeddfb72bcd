# SPDX-License-Identifier: Apache-2.0
"""Clocks: time is an input of the local cloud, so that a test can move it by hand.

A node that lives for six hours must not take six hours to test. Everything below asks a :class:`Clock` for the time
and for its waits; :class:`RealClock` follows the machine, :class:`ManualClock` stands still until a test advances it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the local cloud needs of time."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never runs backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when ``seconds`` of this clock have passed."""
        ...


class RealClock:
    """The machine's time, optionally running faster.

    :param speed: seconds of this clock per second of the machine; 1 is real time.
    :raises ValueError: if the speed is not positive.
    """

    def __init__(self, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be positive, got {speed}")
        self.speed = speed
        self._started = datetime.now(UTC)
        self._origin = time.monotonic()

    def now(self) -> datetime:
        """Return the start of this clock plus what has passed since: a stepped system clock does not disturb it."""
        return self._started + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Return the seconds of this clock since it was made."""
        return (time.monotonic() - self._origin) * self.speed

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` of this clock."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)


class ManualClock:
    """A clock that stands still until :meth:`advance` is called.

    :param start: the first value of :meth:`now`; aware.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the start plus everything advanced so far."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move time forward and wake, in the order of their deadlines, the sleepers that are due.

        A sleeper that sleeps again does so from the new time; use small steps where that matters.

        :raises ValueError: if ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time does not run backwards, got {seconds} s")
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                waiter.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by ``seconds``."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), waiter))
        await waiter
