# SPDX-License-Identifier: Apache-2.0
"""Wait until a TPU is READY: a worker does for a few seconds, a trigger for as long as it takes."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.clients import tpu_list_cache
from airflow_tpu.clients.tpu_list_cache import Fresh
from airflow_tpu.core.ledger.events import TimeSource
from airflow_tpu.core.tpu.readiness import Readiness, Sighting, readiness_of
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.errors import HostLost, RateLimited, ResourceNotFound, StockOut, TransientError
from airflow_tpu.lifecycle.waits.polling import YOUNG, PollLoop, PollPolicy, UnhealthySince

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_messages import OperationView
    from airflow_tpu.core.tpu.spec import QueuedView, TPUView
    from airflow_tpu.lifecycle.waits.target import Target

T = TypeVar("T")

_OPERATION_POLL = 30.0
"""Seconds between two looks at the operation of a node that is on its way; all waits of a zone share them."""


@dataclass(frozen=True)
class Arrival:
    """A TPU that is ready.

    :param view: the node.
    :param ready_at: since when it is charged.
    :param source: the API's clock, or ours when the API has no such time (queued resources).
    :param host_keys: SSH host key of each worker, empty before a command has run there.
    """

    view: TPUView
    ready_at: dt.datetime
    source: TimeSource
    host_keys: tuple[str, ...] = ()


async def until_ready(
    client: TPUClient, target: Target, policy: PollPolicy, unhealthy: UnhealthySince | None = None
) -> Arrival:
    """Wait until the node is READY and healthy.

    :param client: the Cloud TPU API.
    :param target: what was asked for.
    :param policy: how often to look, when to give up.
    :param unhealthy: what an earlier wait has seen; what this one sees is entered.
    :raises CloudError: the operation or the queued resource failed, or the TPU was lost.
    :raises HostLost: for too long it was not healthy, or nothing said that it comes.
    :raises WindowClosed: the run no longer wants a first TPU.
    :raises DeadlineExceeded: it took too long.
    """
    loop = PollLoop(policy, client.clock)
    look = _Look(client, target, Fresh.from_now(policy.poll * YOUNG))
    unhealthy = unhealthy or UnhealthySince()
    while True:
        looked_at = client.clock.now()
        was_overdue = unhealthy.overdue(policy, looked_at) is not None
        try:
            found = await look.judged(by_name=was_overdue)
        except (TransientError, RateLimited) as error:
            await loop.pause(f"the API to answer ({error})")
            continue
        if isinstance(found.error, StockOut):
            loop.check("capacity")  # a request that expired at the end of this wait has ended with it
        if found.error is not None:
            raise found.error
        if found.ready is not None:
            return look.arrival(found.ready, looked_at)
        unhealthy.saw(found.unhealthy, found.coming, looked_at)
        bound = unhealthy.overdue(policy, looked_at)
        if was_overdue and bound is not None:
            raise HostLost(f"gave up waiting for the {found.waiting_for} after {bound:.0f} s: it is replaced.")
        await loop.pause(found.waiting_for)


class _Look:
    """What a wait sees of its TPU: the lists of the zone, which it shares, and what no list has, asked for rarely."""

    def __init__(self, client: TPUClient, target: Target, fresh: Fresh) -> None:
        self._client = client
        self._target = target
        self._fresh = fresh
        self._operation: OperationView | None = None
        self._has_seen_node = False
        self._not_ready_at: dt.datetime | None = None
        self._asked_at = asyncio.get_running_loop().time()

    async def judged(self, by_name: bool = False) -> Readiness:
        """One look; a loss or a success is not believed from a list alone, which may be some seconds old.

        :param by_name: read node and request by their names: the next that is not good is the last look.
        """
        looked_at = self._client.clock.now()
        found = readiness_of(await (self._asked() if by_name else self._listed()))
        if not by_name and (found.error is not None or found.ready is not None):
            found = readiness_of(await self._asked())
        if found.ready is None and self._has_seen_node:  # a list may lack it for a minute
            self._not_ready_at = looked_at
        return found

    def arrival(self, node: TPUView, looked_at: dt.datetime) -> Arrival:
        """The TPU, READY since the end of its operation.

        A queued resource does not say since when. The node was not READY at the last look that showed it, or, first
        seen READY (adopted, or no list had it yet), before it was created: counted from there it is never too little.

        :param node: that is READY.
        :param looked_at: when that was seen, which counts if nothing else is known.
        """
        operation = self._operation
        if not self._target.is_queued and operation is not None and operation.ended_at is not None:
            return Arrival(node, operation.ended_at, TimeSource.API)
        return Arrival(node, self._not_ready_at or node.created_at or looked_at, TimeSource.OBSERVED)

    async def _listed(self) -> Sighting:
        zone = self._target.node.zone
        node = (await tpu_list_cache.nodes(self._client, zone, self._fresh)).get(self._target.node)
        queued = None
        if self._target.is_queued and (node is None or node.phase is not Phase.USABLE):
            queued = (await tpu_list_cache.queued_resources(self._client, zone, self._fresh)).get(self._target.queued)
        # While the node is on its way its operation has nothing to tell, unless it has failed: that may take a minute.
        on_its_way = queued is not None or (node is not None and node.phase is Phase.PENDING)
        if self._target.operation and (node is None or node.phase is not Phase.USABLE):
            await self._look_at_operation(_OPERATION_POLL if on_its_way else 0.0)
        return self._sighting(node, queued)

    async def _look_at_operation(self, pause: float) -> None:
        """Read it from the list that all waits share; by its name, and not more often than that, if it is not there."""
        fresh = Fresh(pause) if pause else self._fresh
        listed = await tpu_list_cache.operation(self._client, self._target.operation, fresh)
        if listed is not None:
            self._operation = listed
        elif asyncio.get_running_loop().time() - self._asked_at >= pause:
            await self._ask_for_operation()

    async def _asked(self) -> Sighting:
        node = await _known(self._client.node(self._target.node))
        usable = node is not None and node.phase is Phase.USABLE
        queued = None
        if self._target.is_queued and not usable:
            queued = await _known(self._client.queued_resource(self._target.queued))
        if self._target.operation:
            await self._ask_for_operation()
        return self._sighting(node, queued)

    async def _ask_for_operation(self) -> None:
        self._asked_at = asyncio.get_running_loop().time()
        self._operation = await _known(self._client.operation(self._target.operation))

    def _sighting(self, node: TPUView | None, queued: QueuedView | None) -> Sighting:
        operation = self._operation
        self._has_seen_node = node is not None
        return Sighting(
            node=node,
            queued=queued,
            is_queued=self._target.is_queued,
            operation_done=operation is not None and operation.done,
            operation_running=operation is not None and not operation.done,
            operation_error=operation.error if operation is not None else None,
            at=self._client.clock.now(),
        )


async def _known(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except ResourceNotFound:
        return None
