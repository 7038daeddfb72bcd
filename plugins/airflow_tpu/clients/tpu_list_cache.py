# SPDX-License-Identifier: Apache-2.0
"""One list per zone for all waits of a process: the calls grow with the zones, not with the TPUs.

A triggerer may watch hundreds of TPUs. Each caller takes the newest list that is young enough, or joins the
fetch that is under way; only otherwise is the API called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from airflow_tpu.core.tpu.resource_name import zone_of
from airflow_tpu.errors import AccessDenied, TPUError, TransientError

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_calls import Listing
    from airflow_tpu.clients.tpu_messages import OperationView
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import QueuedView, TPUView

V = TypeVar("V")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fresh:
    """How new a list has to be, on the clock of the event loop.

    :param within: seconds since it was asked for, at most.
    :param after: it was asked for after this instant: it contains what was created before.
    """

    within: float
    after: float = float("-inf")

    @classmethod
    def from_now(cls, within: float) -> Fresh:
        """Asked for after this call, and used by others for so many seconds."""
        return cls(within, asyncio.get_running_loop().time())


class _Abandoned(Exception):
    """The caller that was fetching has been cancelled; another one has to fetch."""


class _Shared(Generic[V]):
    """The newest value, and the fetch of the next one if there is any."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._value: V | None = None
        self._pending: asyncio.Future[V] | None = None

    async def get(self, fetch: Callable[[], Awaitable[V]], fresh: Fresh) -> V:
        loop = asyncio.get_running_loop()
        while True:
            oldest = max(loop.time() - fresh.within, fresh.after)
            if self._value is not None and self._asked_at >= oldest:
                return self._value
            if self._pending is None:
                return await self._fetch(fetch)
            try:
                await asyncio.shield(self._pending)
            except _Abandoned:
                continue

    async def _fetch(self, fetch: Callable[[], Awaitable[V]]) -> V:
        loop = asyncio.get_running_loop()
        asked_at, pending = loop.time(), loop.create_future()
        self._pending = pending
        try:
            value = await fetch()
        except BaseException as error:
            # What the API said is said to all who wait; a cancelled fetch says nothing.
            pending.set_exception(error if isinstance(error, TPUError) else _Abandoned())
            pending.exception()  # there may be no caller left
            raise
        finally:
            self._pending = None
        self._asked_at, self._value = asked_at, value
        pending.set_result(value)
        return value


# An event loop's futures are its own, so each loop has its own lists; they go with it.
_LISTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, ...], _Shared[Any]]] = WeakKeyDictionary()


async def shared(key: tuple[str, ...], fetch: Callable[[], Awaitable[V]], fresh: Fresh) -> V:
    """Anything else that many waits of a process look at: the newest of it that is young enough.

    :param key: which thing; the same for all who ask for it.
    :param fetch: reads it.
    :param fresh: how new it has to be.
    """
    lists = _LISTS.setdefault(asyncio.get_running_loop(), {})
    value: V = await lists.setdefault(key, _Shared()).get(fetch, fresh)
    return value


def _shared(client: TPUClient, kind: str, zone: str) -> _Shared[Any]:
    lists = _LISTS.setdefault(asyncio.get_running_loop(), {})
    return lists.setdefault((kind, zone, *client.endpoint.account), _Shared())


async def _known(shared: _Shared[Listing[V]], fetch: Callable[[], Awaitable[Listing[V]]], fresh: Fresh) -> Listing[V]:
    return await shared.get(fetch, fresh)


async def nodes(client: TPUClient, zone: str, fresh: Fresh) -> dict[ResourceName, TPUView]:
    """Nodes of a zone by their full names.

    :raises TransientError: the zone does not answer: what lives there is unknown.
    """
    found: Listing[TPUView] = await _known(_shared(client, "nodes", zone), lambda: client.nodes(zone), fresh)
    return {item.name: item for item in _reached(found, zone)}


async def queued_resources(client: TPUClient, zone: str, fresh: Fresh) -> dict[ResourceName, QueuedView]:
    """Queued resources of a zone by their full names.

    :raises TransientError: the zone does not answer: what is queued there is unknown.
    """
    shared = _shared(client, "queued", zone)
    found: Listing[QueuedView] = await _known(shared, lambda: client.queued_resources(zone), fresh)
    return {item.name: item for item in _reached(found, zone)}


async def operation(client: TPUClient, name: str, fresh: Fresh) -> OperationView | None:
    """One operation, from the list of its zone; None if that has not got it: new, forgotten, or none of ours to list.

    :param name: full name of the operation.
    """
    parent, _, number = name.rpartition("/operations/")
    zone = zone_of(parent)

    async def by_number() -> dict[str, OperationView]:
        try:
            found = await client.operations(zone)
        except AccessDenied as error:
            log.debug("the operations of %s cannot be listed, each is asked for by its name: %s", zone, error)
            return {}
        return {item.name.rpartition("/")[2]: item for item in found.items}

    known: dict[str, OperationView] = await _shared(client, "operations", zone).get(by_number, fresh)
    return known.get(number)


async def everything(client: TPUClient, fresh: Fresh) -> tuple[Listing[TPUView], Listing[QueuedView]]:
    """Nodes and queued resources of all zones, with the zones that did not answer."""
    both: tuple[Listing[TPUView], Listing[QueuedView]] = await asyncio.gather(
        _known(_shared(client, "nodes", "-"), client.nodes, fresh),
        _known(_shared(client, "queued", "-"), client.queued_resources, fresh),
    )
    return both


def _reached(found: Listing[V], zone: str) -> tuple[V, ...]:
    if found.unreachable:
        raise TransientError(f"zone {zone} did not answer: what lives there is unknown")
    return found.items
