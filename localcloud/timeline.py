# SPDX-License-Identifier: Apache-2.0
"""Callbacks that are due later, in one ordered list driven by a clock.

The state machine never waits; it plans callbacks. In virtual time :func:`advance` plays the
list, on sockets :meth:`Timeline.run` does, and both run the same callbacks in the same order.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from localcloud.clock import Clock, ManualClock


@dataclass(order=True)
class Timer:
    """One pending callback.

    :param due: seconds of the clock's monotonic time.
    :param order: breaks ties: first planned, first run.
    """

    due: float
    order: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Keep the callback from running."""
        self.cancelled = True


class Timeline:
    """Pending callbacks in the order they fall due; all calls from one thread.

    :param clock: where the time comes from.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._timers: list[Timer] = []
        self._order = itertools.count()
        self._planned: asyncio.Event | None = None

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` in ``seconds``."""
        timer = Timer(self.clock.monotonic() + max(0.0, seconds), next(self._order), callback)
        heapq.heappush(self._timers, timer)
        if self._planned is not None:
            self._planned.set()
        return timer

    def next_due(self) -> float | None:
        """Return when the next callback falls due, or ``None``."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].due if self._timers else None

    def run_due(self) -> None:
        """Run everything that is due now."""
        while (due := self.next_due()) is not None and due <= self.clock.monotonic():
            heapq.heappop(self._timers).callback()

    async def run(self) -> None:
        """Run callbacks as they fall due, until cancelled."""
        self._planned = asyncio.Event()
        while True:
            self.run_due()
            self._planned.clear()
            await self._until_due_or_planned(self._planned)

    async def _until_due_or_planned(self, planned: asyncio.Event) -> None:
        due = self.next_due()
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(planned.wait())]
        if due is not None:
            waits.append(asyncio.ensure_future(self._sleep_until(due)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _sleep_until(self, due: float) -> None:
        await self.clock.sleep(due - self.clock.monotonic())


def advance(timeline: Timeline, clock: ManualClock, seconds: float) -> None:
    """Play ``seconds`` of virtual time: every callback runs at its own instant, in order."""
    end = clock.monotonic() + seconds
    timeline.run_due()
    while (due := timeline.next_due()) is not None and due <= end:
        clock.advance(max(0.0, due - clock.monotonic()))
        timeline.run_due()
    clock.advance(max(0.0, end - clock.monotonic()))
