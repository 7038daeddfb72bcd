# SPDX-License-Identifier: Apache-2.0
"""How often a wait looks, what it says meanwhile, and when it gives up."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.tpu.readiness import Wait
from airflow_tpu.errors import DeadlineExceeded, WindowClosed

if TYPE_CHECKING:
    from airflow_tpu.clients.clock import Clock

T = TypeVar("T")
log = logging.getLogger(__name__)

_SAY_AGAIN = 60.0
"""Seconds after which an unchanged wait is reported again."""

SAY_LONG_WAIT_AGAIN = 600.0
"""The same of a wait for capacity or for room, which may take days."""

YOUNG = 0.75
"""How old, in polls, a list may be that another wait has asked for."""


@dataclass(frozen=True)
class PollPolicy:
    """How often to look and when to give up.

    :param poll: seconds between two looks.
    :param until: absolute instant; a restarted trigger keeps it.
    :param since: when the wait began, in whatever process; None for now.
    :param closes: give up if the TPU is not READY by then; None: never.
    :param unhealthy: seconds for which a TPU may be unhealthy, under repair, without addresses or in an unknown state
        before it is replaced: it may be charged.
    :param coming: seconds for which Google may be at work on it (CREATING, PROVISIONING, RESTARTING, REIMAGING ...):
        twice the half hour after which users of slices of 256 VMs give a create up (marin-community/marin).
    :param longest: seconds up to which the pause between two looks doubles; None: every pause is ``poll``.
    :param say_again: seconds after which an unchanged wait is reported again.
    """

    poll: float
    until: dt.datetime
    since: dt.datetime | None = None
    closes: dt.datetime | None = None
    unhealthy: float = 900.0
    coming: float = 3600.0
    longest: float | None = None
    say_again: float = _SAY_AGAIN


@dataclass(frozen=True)
class Waiting:
    """How a task waits: for some seconds in its worker and then in a trigger, or in its worker to the end.

    :param poll: seconds between two looks of a long wait.
    :param inline: seconds in the worker, None to the end.
    """

    poll: float
    inline: float | None = None

    @property
    def inline_poll(self) -> float:
        """Seconds between two looks in the worker: a short wait holds a slot, so every second of it counts."""
        return self.poll if self.inline is None else min(1.0, self.poll)

    @property
    def may_defer(self) -> bool:
        """Whether a trigger takes over what takes longer."""
        return self.inline is not None

    def seconds(self, until: dt.datetime, now: dt.datetime) -> float:
        """How long the worker waits for something that is given up at an instant."""
        return max(1.0, (until - now).total_seconds() + self.poll) if self.inline is None else self.inline


class PollLoop:
    """Pauses between two looks, logs what a wait is for without repeating itself, and ends it at the deadline.

    :param policy: how often to look, since when, until when.
    :param clock: tells the time.
    :ivar next_pause: seconds of the next pause.
    """

    def __init__(self, policy: PollPolicy, clock: Clock) -> None:
        self.policy = policy
        self.clock = clock
        self.wait = Wait(policy.since or clock.now(), first_of(policy.until, policy.closes))
        self.next_pause = policy.poll
        self._said = ("", self.wait.since)

    async def pause(self, what: str) -> None:
        """Sleep until the next look.

        :param what: what is waited for, in words.
        :raises WindowClosed: the first TPU did not come in time.
        :raises DeadlineExceeded: the deadline has passed.
        """
        self.check(what)
        self.say(what)
        await asyncio.sleep(self.next_pause)
        if self.policy.longest is not None:
            self.next_pause = min(2 * self.next_pause, self.policy.longest)

    def check(self, what: str) -> None:
        """End the wait if its time is over.

        :param what: what is waited for, in words.
        :raises WindowClosed: the first TPU did not come in time.
        :raises DeadlineExceeded: the deadline has passed.
        """
        now = self.clock.now()
        if now >= self.wait.until:
            line = self.wait.line(what, now, 0)
            if now < self.policy.until:
                raise WindowClosed(f"no TPU in time, gave up {line}.")
            raise DeadlineExceeded(f"gave up {line}. The TPU is deleted by the teardown task.")

    def say(self, what: str, detail: str = "") -> None:
        """Log what is waited for, unless that was logged within ``say_again`` seconds.

        :param what: what is waited for; another wait is logged at once.
        :param detail: how far it is, in words.
        """
        now = self.clock.now()
        reason, at = self._said
        if reason != what or (now - at).total_seconds() >= self.policy.say_again:
            log.info(self.wait.line(f"{what} ({detail})" if detail else what, now, self.next_pause))
            self._said = (what, now)


@dataclass
class UnhealthySince:
    """Since when a node has not been healthy, or on its way: kept when a wait moves from the worker to a trigger.

    :param since: epoch of the first look in a row at which it was not healthy, 0 while it is.
    :param coming: epoch of the first look in a row at which Google was at work on it, 0 while it is not.
    """

    since: float = 0.0
    coming: float = 0.0

    def seconds(self, unhealthy: bool, at: dt.datetime) -> float:
        """Enter one more look.

        :param unhealthy: what was seen.
        :param at: when.
        :return: for how long it has not been healthy.
        """
        self.since = (self.since or at.timestamp()) if unhealthy else 0.0
        return self.lasted(at)

    def lasted(self, at: dt.datetime) -> float:
        """For how long it had not been healthy at an instant, by the looks so far."""
        return at.timestamp() - self.since if self.since else 0.0

    def overdue(self, policy: PollPolicy, at: dt.datetime) -> float | None:
        """The bound, in seconds, that the looks so far have passed at an instant; None while they have passed none."""
        if self.lasted(at) >= policy.unhealthy:
            return policy.unhealthy
        has_passed = self.coming and at.timestamp() - self.coming >= policy.coming
        return policy.coming if has_passed else None

    def saw(self, unhealthy: bool, coming: bool, at: dt.datetime) -> None:
        """Enter one more look.

        :param unhealthy: nothing said that it comes by itself.
        :param coming: Google was at work on it.
        :param at: when.
        """
        self.seconds(unhealthy, at)
        self.coming = (self.coming or at.timestamp()) if coming else 0.0


async def within(seconds: float, wait: Awaitable[T]) -> T | None:
    """Run a wait in the worker for a short time; None when it needs a trigger."""
    try:
        return await asyncio.wait_for(wait, seconds)
    except TimeoutError:
        return None


async def not_before(instant: float, now: Callable[[], float]) -> None:
    """Hold a trigger's event back until an absolute instant (epoch seconds).

    An event within some seconds of the deferral meets the executor's report of the deferral itself, and the try is
    failed (https://github.com/apache/airflow/issues/67287).
    """
    await asyncio.sleep(max(0.0, instant - now()))
