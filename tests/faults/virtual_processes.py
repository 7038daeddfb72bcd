# SPDX-License-Identifier: Apache-2.0
"""Processes that take turns: threads of which exactly one runs, and which stop before every request they send.

The test decides which process continues, how time passes and which one dies where, so an interleaving of processes is
nothing but a list of choices, and the same list gives the same history on any machine, however busy.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from airflow_tpu.clients.clock import Clock
from localcloud.clock import ManualClock

T = TypeVar("T")
_PATIENCE = 120.0
_INSTANT = 1e-6


class Killed(BaseException):
    """The process has died here: no handler of the product catches it, and nothing it does afterwards counts."""


class Process:
    """One process of the product, stopped at its first request until :meth:`go`.

    :param title: for people.
    :param clock: the clock that all processes share.
    :ivar at: what it is about to ask, empty once it has ended.
    :ivar wakes_at: seconds of the clock before which it sleeps, None when it does not.
    :ivar error: what it ended with.
    """

    def __init__(self, title: str, clock: ManualClock) -> None:
        self.title = title
        self.at = "its start"
        self.wakes_at: float | None = None
        self.error: BaseException | None = None
        self._clock = clock
        self._killed = False
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def start(self, body: Callable[[], object]) -> None:
        """Make the thread; nothing of ``body`` runs yet."""

        def run() -> None:
            self._mine.acquire()
            try:
                if not self._killed:
                    body()
            except BaseException as error:  # noqa: BLE001 - kept for whoever looks at the process
                self.error = error
            self.at = ""
            self._theirs.release()

        self._thread = threading.Thread(target=run, name=self.title, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether nothing is left to run."""
        return not self.at

    @property
    def asleep(self) -> bool:
        """Whether it sleeps, so that only time lets it continue."""
        return self.wakes_at is not None and self.wakes_at > self._clock.monotonic()

    def go(self) -> None:
        """Let it send its next request, and what follows up to the one after."""
        if self.ended or self.asleep:
            return
        self._mine.release()
        assert self._theirs.acquire(timeout=_PATIENCE), f"{self.title} hangs at {self.at}"
        if self.ended and self._thread is not None:
            self._thread.join(_PATIENCE)

    def kill(self) -> None:
        """Let it die where it is."""
        self._killed = True
        self.wakes_at = None
        while not self.ended:
            self.go()

    # -- from inside the process -----------------------------------------------------------------------------------

    def stop_before(self, request: str) -> None:
        """Give the turn away; the request is sent once it comes back.

        Where the product reads many objects side by side, its helper threads have no turns: nothing gets in between.
        """
        if threading.current_thread() is not self._thread:
            return
        if not self._killed:
            self.at = request
            self._theirs.release()
            self._mine.acquire()
        if self._killed:
            raise Killed

    def sleep(self, seconds: float) -> None:
        """Let so many seconds of the clock pass."""
        # At least an instant: sums of floating point numbers may otherwise never reach the wanted moment.
        self.wakes_at = self._clock.monotonic() + max(seconds, _INSTANT)
        self.stop_before(f"sleeping {seconds:.1f} s")
        self.wakes_at = None

    @property
    def clock(self) -> Clock:
        """The clock as the product takes it."""
        return Clock(self._clock.now, self._clock.monotonic, self.sleep)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine like ``asyncio.run``, on the clock that all processes share."""
        with asyncio.Runner(loop_factory=lambda: _Loop(self, self._clock)) as runner:
            return runner.run(work)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop without sockets whose waits are sleeps of its process."""

    def __init__(self, process: Process, clock: ManualClock) -> None:
        self._clock = clock
        super().__init__(_NoSockets(process))
        self.set_exception_handler(lambda *_: None)  # tasks of a process that was killed end with Killed

    def time(self) -> float:
        """Seconds of the clock that all processes share."""
        return self._clock.monotonic()


class _NoSockets(selectors.BaseSelector):
    def __init__(self, process: Process) -> None:
        self._process = process
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError(f"{self._process.title} waits for nothing that could ever happen")
        if timeout > 0:
            self._process.sleep(timeout)
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._keys
