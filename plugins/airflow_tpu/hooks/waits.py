"""The long waits, written once: a worker runs them for a few seconds, a trigger for as long as it takes."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.core.ledger import TimeSource
from airflow_tpu.core.readiness import Sighting, Wait, judge
from airflow_tpu.errors import DeadlineExceeded, RateLimited, ResourceNotFound, TransientError
from airflow_tpu.hooks.census import take_census
from airflow_tpu.hooks.release import delete_seen, left_of

if TYPE_CHECKING:
    from airflow_tpu.core.names import RunKey
    from airflow_tpu.core.tpu import TPUView
    from airflow_tpu.hooks.clock import Clock
    from airflow_tpu.hooks.provision import Target
    from airflow_tpu.hooks.tpu_client import OperationView, TPUClient

T = TypeVar("T")
log = logging.getLogger(__name__)

_SAY_AGAIN = 60.0
"""Seconds after which an unchanged wait is reported again."""


@dataclass(frozen=True)
class Pace:
    """How often to look and when to give up.

    :param poll: seconds between two looks.
    :param until: absolute instant; a restarted trigger goes on with the same one.
    """

    poll: float
    until: dt.datetime


@dataclass(frozen=True)
class Arrival:
    """A TPU that is ready.

    :param view: the node.
    :param ready_at: since when it is charged.
    :param source: the API's clock, or ours when the API has no such time (queued resources).
    """

    view: TPUView
    ready_at: dt.datetime
    source: TimeSource


class _Patience:
    """Says what a loop waits for, without repeating itself, and ends it at the deadline."""

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self.pace = pace
        self.clock = clock
        self.wait = Wait(since=clock.now(), until=pace.until)
        self._said = ("", self.wait.since)

    async def for_(self, what: str) -> None:
        now = self.clock.now()
        if now >= self.pace.until:
            raise DeadlineExceeded(f"gave up {self.wait.line(what, now, 0)}. The TPU is deleted by the teardown task.")
        reason, at = self._said
        if reason != what or (now - at).total_seconds() >= _SAY_AGAIN:
            log.info(self.wait.line(what, now, self.pace.poll))
            self._said = (what, now)
        await asyncio.sleep(self.pace.poll)


async def until_ready(client: TPUClient, target: Target, pace: Pace) -> Arrival:
    """Wait until the node is READY and healthy.

    :param client: the Cloud TPU API.
    :param target: what was asked for.
    :param pace: how often to look, when to give up.
    :raises CloudError: the operation or the queued resource failed, or the TPU was lost.
    :raises DeadlineExceeded: it took too long.
    """
    patience = _Patience(pace, client.clock)
    not_ready_at: dt.datetime | None = None
    while True:
        looked_at = client.clock.now()
        try:
            seen, operation = await _look(client, target)
        except (TransientError, RateLimited) as error:
            await patience.for_(f"the API to answer ({error})")
            continue
        verdict = judge(seen)
        if verdict.error is not None:
            raise verdict.error
        if verdict.ready is not None:
            # A queued resource does not say since when. The node was not READY at the last look, or, found READY at
            # once (adopted), before it was created: counted from there it is never too little.
            return _arrival(verdict.ready, target, operation, not_ready_at or verdict.ready.created_at or looked_at)
        not_ready_at = looked_at
        await patience.for_(verdict.waiting_for)


async def until_gone(client: TPUClient, key: RunKey, pace: Pace) -> None:
    """Wait until the API no longer knows any node or queued resource of a run, in any zone.

    What can be deleted only now is deleted on the way: a request that was SUSPENDING, a delete that failed.

    :raises DeadlineExceeded: something is still there; the message names it.
    """
    patience = _Patience(pace, client.clock)
    while True:
        try:
            census = await take_census(client)
        except (TransientError, RateLimited) as error:
            await patience.for_(f"the API to answer ({error})")
            continue
        left = left_of(census, key) + [f"unreachable zone {zone}" for zone in census.unreachable]
        if not left:
            return
        await delete_seen(client, census, key)
        await patience.for_(f"{', '.join(left)} to be gone")


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


async def _look(client: TPUClient, target: Target) -> tuple[Sighting, OperationView | None]:
    node = await _known(client.node(target.node))
    queued = await _known(client.queued_resource(target.queued)) if target.queued and node is None else None
    operation = await _known(client.operation(target.operation)) if target.operation else None
    seen = Sighting(
        node=node,
        queued=queued,
        is_queued=bool(target.queued),
        operation_done=operation.done if operation is not None else False,
        operation_error=operation.error if operation is not None else None,
        at=client.clock.now(),
    )
    return seen, operation


async def _known(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except ResourceNotFound:
        return None


def _arrival(node: TPUView, target: Target, operation: OperationView | None, earliest: dt.datetime) -> Arrival:
    if not target.queued and operation is not None and operation.ended_at is not None:
        return Arrival(node, operation.ended_at, TimeSource.API)
    return Arrival(node, earliest, TimeSource.OBSERVED)
