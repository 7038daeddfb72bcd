"""The long waits, written once: a worker runs them for a few seconds, a trigger for as long as it takes."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.clients import tpu_list_cache
from airflow_tpu.clients.tpu_list_cache import Fresh
from airflow_tpu.core.ledger.events import TimeSource
from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.tpu.readiness import Judgement, Sighting, Wait, judge
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.errors import (
    DeadlineExceeded,
    HostLost,
    RateLimited,
    ResourceNotFound,
    TPUError,
    TPULost,
    TransientError,
    WindowClosed,
)
from airflow_tpu.lifecycle.incarnation_end import settled
from airflow_tpu.lifecycle.loss import lost_state
from airflow_tpu.lifecycle.project_snapshot import look_again, shared_census
from airflow_tpu.lifecycle.release import Release, delete_seen, left_of

if TYPE_CHECKING:
    from airflow_tpu.clients.clock import Clock
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_messages import OperationView
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import QueuedView, TPUView
    from airflow_tpu.lifecycle.project_snapshot import Census
    from airflow_tpu.lifecycle.target import Target

T = TypeVar("T")
log = logging.getLogger(__name__)

_SAY_AGAIN = 60.0
"""Seconds after which an unchanged wait is reported again."""

_YOUNG = 0.75
"""How old, in polls, a list may be that another wait has asked for."""

_OPERATION_POLL = 30.0
"""Seconds between two looks at the operation of a node that is on its way."""


@dataclass(frozen=True)
class Pace:
    """How often to look and when to give up.

    :param poll: seconds between two looks.
    :param until: absolute instant; a restarted trigger goes on with the same one.
    :param since: when the wait began, in whatever process; None for now.
    :param closes: instant from which on a TPU that is not READY is wanted no more, None for never.
    :param sick: seconds for which a node may be unhealthy or under repair before it is replaced: it is charged.
    """

    poll: float
    until: dt.datetime
    since: dt.datetime | None = None
    closes: dt.datetime | None = None
    sick: float = 900.0


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


class Patience:
    """Says what a loop waits for, without repeating itself, and ends it at the deadline.

    :param pace: how often to look, since when, until when.
    :param clock: tells the time.
    """

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self.pace = pace
        self.clock = clock
        self.wait = Wait(pace.since or clock.now(), first_of(pace.until, pace.closes))
        self._said = ("", self.wait.since)

    async def for_(self, what: str) -> None:
        """Sleep until the next look.

        :param what: what is waited for, in words.
        :raises WindowClosed: the first TPU did not come in time.
        :raises DeadlineExceeded: the deadline has passed.
        """
        now = self.clock.now()
        if now >= self.wait.until:
            line = self.wait.line(what, now, 0)
            if now < self.pace.until:
                raise WindowClosed(f"no TPU in time, gave up {line}.")
            raise DeadlineExceeded(f"gave up {line}. The TPU is deleted by the teardown task.")
        self.say(what)
        await asyncio.sleep(self.pace.poll)

    def say(self, what: str, detail: str = "") -> None:
        """Write the line of a wait, unless it was written within the last minute.

        :param what: what is waited for; another wait is said at once.
        :param detail: how far it is, in words.
        """
        now = self.clock.now()
        reason, at = self._said
        if reason != what or (now - at).total_seconds() >= _SAY_AGAIN:
            log.info(self.wait.line(f"{what} ({detail})" if detail else what, now, self.pace.poll))
            self._said = (what, now)


@dataclass
class Illness:
    """How long a node has not been well, whoever waits for it: a wait that changes hands must not count anew.

    :param since: epoch of the first look in a row at which it was not, 0 while it is.
    """

    since: float = 0.0

    def lasts(self, sick: bool, at: dt.datetime) -> float:
        """Seconds, after one more look.

        :param sick: what was seen.
        :param at: when.
        """
        self.since = (self.since or at.timestamp()) if sick else 0.0
        return at.timestamp() - self.since if sick else 0.0


async def until_ready(client: TPUClient, target: Target, pace: Pace, illness: Illness | None = None) -> Arrival:
    """Wait until the node is READY and healthy.

    :param client: the Cloud TPU API.
    :param target: what was asked for.
    :param pace: how often to look, when to give up.
    :param illness: what an earlier wait has seen; what this one sees is entered.
    :raises CloudError: the operation or the queued resource failed, or the TPU was lost.
    :raises HostLost: it has been there for too long without being well.
    :raises WindowClosed: the TPU was wanted earlier, or not at all.
    :raises DeadlineExceeded: it took too long.
    """
    patience = Patience(pace, client.clock)
    look = _Look(client, target, Fresh.from_now(pace.poll * _YOUNG))
    not_ready_at: dt.datetime | None = None
    illness = illness or Illness()
    while True:
        looked_at = client.clock.now()
        try:
            verdict = await look.judged()
        except (TransientError, RateLimited) as error:
            await patience.for_(f"the API to answer ({error})")
            continue
        if verdict.error is not None:
            raise verdict.error
        if verdict.ready is not None:
            # A queued resource does not say since when. The node was not READY at the last look, or, found READY at
            # once (adopted), before it was created: counted from there it is never too little.
            return look.arrival(verdict.ready, not_ready_at or verdict.ready.created_at or looked_at)
        not_ready_at = looked_at
        if illness.lasts(verdict.sick, looked_at) >= pace.sick:
            raise HostLost(f"gave up waiting for the {verdict.waiting_for} after {pace.sick:.0f} s: it is replaced.")
        await patience.for_(verdict.waiting_for)


async def until_lost(client: TPUClient, node: ResourceName, poll: float) -> TPULost:
    """Watch a node until it is gone or going, and say how; an API that stumbles says nothing.

    :param client: the Cloud TPU API.
    :param node: which.
    :param poll: seconds between two looks.
    """
    while True:
        await asyncio.sleep(poll)
        try:
            view = (await tpu_list_cache.nodes(client, node.zone, Fresh(poll * _YOUNG))).get(node)
        except TPUError as error:
            log.debug("nothing is known of %s: %s", node, error)
            continue
        if view is None or view.phase in (Phase.LOST, Phase.DELETING):
            lost = await lost_state(client, node)
            if lost is not None:
                return lost


async def until_gone(
    client: TPUClient, key: RunKey, pace: Pace, asked: Release | None = None, names: Iterable[ResourceName] = ()
) -> None:
    """Wait until the API no longer knows any node or queued resource of a run, in any zone.

    What can be deleted only now is deleted on the way: a request that was SUSPENDING, a delete that failed.

    :param asked: what had been asked for before; how what is deleted on the way ended is entered there, so that it is
        known although the wait is cancelled.
    :param names: full names of what may be there although no list shows it yet.
    :raises DeadlineExceeded: something is still there; the message names it.
    """
    patience = Patience(pace, client.clock)
    fresh = Fresh.from_now(pace.poll * _YOUNG)
    while True:
        try:
            listed = await shared_census(client, fresh)
            census = await look_again(client, listed, _asked_for(listed, key, names))
        except (TransientError, RateLimited) as error:
            await patience.for_(f"the API to answer ({error})")
            continue
        # Both have to agree: whoever asks the grant next goes by the lists.
        left = list(dict.fromkeys([*left_of(listed, key), *left_of(census, key)]))
        left += [f"unreachable zone {zone}" for zone in census.unreachable]
        if not left:
            return
        again = await delete_seen(client, census, key)
        if asked is not None:
            asked.endings[:] = settled(asked.endings, again.endings)
        await patience.for_(f"{', '.join(left)} to be gone")


def _asked_for(listed: Census, key: RunKey, names: Iterable[ResourceName]) -> set[ResourceName]:
    """Whom a wait for the end has to ask for by name: what it would delete once more by a list that may be behind.

    The names that no list may show matter once the lists show nothing else; until then the wait goes on anyway.
    """
    ours = listed.all_ours(key)
    return {item.name for item in ours if item.phase is not Phase.DELETING} if ours else set(names)


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


class _Look:
    """What a wait sees of its TPU: the lists of the zone, which it shares, and what no list has, asked for rarely."""

    def __init__(self, client: TPUClient, target: Target, fresh: Fresh) -> None:
        self._client = client
        self._target = target
        self._fresh = fresh
        self._operation: OperationView | None = None
        self._asked_at = float("-inf")

    async def judged(self) -> Judgement:
        """One look; a loss or a success is not believed from a list alone, which may be some seconds old."""
        verdict = judge(await self._listed())
        return judge(await self._asked()) if verdict.error is not None or verdict.ready is not None else verdict

    def arrival(self, node: TPUView, earliest: dt.datetime) -> Arrival:
        """The TPU, READY since the end of its operation, or since this instant when there is none to go by."""
        operation = self._operation
        if not self._target.is_queued and operation is not None and operation.ended_at is not None:
            return Arrival(node, operation.ended_at, TimeSource.API)
        return Arrival(node, earliest, TimeSource.OBSERVED)

    async def _listed(self) -> Sighting:
        zone = self._target.node.zone
        node = (await tpu_list_cache.nodes(self._client, zone, self._fresh)).get(self._target.node)
        queued = None
        if self._target.is_queued and (node is None or node.phase is not Phase.USABLE):
            queued = (await tpu_list_cache.queued_resources(self._client, zone, self._fresh)).get(self._target.queued)
        # While the node is on its way its operation has nothing to tell, unless it has failed: that may take a minute.
        on_its_way = queued is not None or (node is not None and node.phase is Phase.PENDING)
        return await self._sighting(node, queued, _OPERATION_POLL if on_its_way else 0.0)

    async def _asked(self) -> Sighting:
        node = await _known(self._client.node(self._target.node))
        usable = node is not None and node.phase is Phase.USABLE
        queued = None
        if self._target.is_queued and not usable:
            queued = await _known(self._client.queued_resource(self._target.queued))
        return await self._sighting(node, queued, 0.0)

    async def _sighting(self, node: TPUView | None, queued: QueuedView | None, operation_poll: float) -> Sighting:
        now = asyncio.get_running_loop().time()
        if self._target.operation and now - self._asked_at >= operation_poll:
            self._operation, self._asked_at = await _known(self._client.operation(self._target.operation)), now
        operation = self._operation
        return Sighting(
            node=node,
            queued=queued,
            is_queued=self._target.is_queued,
            operation_done=operation.done if operation is not None else False,
            operation_error=operation.error if operation is not None else None,
            at=self._client.clock.now(),
        )


async def _known(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except ResourceNotFound:
        return None
