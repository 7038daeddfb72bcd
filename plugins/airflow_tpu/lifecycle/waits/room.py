# SPDX-License-Identifier: Apache-2.0
"""Wait until the grant has room again that other runs of this Airflow use now.

All waits of a process share the lists of the API and the list of reservations, so that calls grow with neither the
runs that wait nor the rows they wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_tpu.clients.tpu_list_cache import Fresh, shared
from airflow_tpu.core.grant.assignment import assign
from airflow_tpu.core.grant.checks import coverage
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.errors import ConfigError, DeadlineExceeded, GrantUnknown, RateLimited, TransientError, WindowClosed
from airflow_tpu.lifecycle.project_snapshot import shared_snapshot
from airflow_tpu.lifecycle.waits.polling import SAY_LONG_WAIT_AGAIN, YOUNG, PollLoop, PollPolicy

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.catalogue.catalogue import Catalogue
    from airflow_tpu.core.grant.alternatives import Alternative
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.grant.inventory import Inventory
    from airflow_tpu.core.grant.reservations import Reservations
    from airflow_tpu.core.tpu.identity import KnownAirflow
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.stores.reservations import ReservationStore

log = logging.getLogger(__name__)

TURN = dt.timedelta(minutes=5)
"""More than a look, a deferral that ends and the lists of a create take together."""

LONGEST_PAUSE = 60.0
"""Seconds to which the pause between two looks grows: a training ends seldom, and a free row earns nothing."""


@dataclass(frozen=True)
class Wanted:
    """What a run waits for room for.

    :param key: of the run.
    :param rooms: TPUs of which any will do, of rows that were in use.
    :param ask_at: when to ask in any case.
    :param around: digests of the runs that end only after this one.
    """

    key: RunKey
    rooms: tuple[Alternative, ...]
    ask_at: dt.datetime
    around: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Seen:
    """What one look has found.

    :param held: why no row has room, in words; empty as soon as one has.
    :param is_unused: there is room, for which an older wait comes first that does not take it.
    """

    held: str = ""
    is_unused: bool = False


@dataclass(frozen=True)
class RoomSource:
    """Where room is looked for.

    :param grant: whose rows they are.
    :param catalogue: how many chips a type has.
    :param reservations: what runs have taken although the API cannot show it yet, and what they wait for.
    :param turn: how long the oldest wait may leave room unused before the next one goes first: its task may be paused.
    :param airflows: what the bucket knows of others that share it.
    """

    grant: Grant
    catalogue: Catalogue
    reservations: ReservationStore
    turn: dt.timedelta = TURN
    airflows: Mapping[str, KnownAirflow] = field(default_factory=dict)


def room_for(rooms: Iterable[Alternative], why: object) -> str:
    """What is waited for, in words.

    :param rooms: TPUs of which any will do.
    :param why: why there is none.
    """
    held = "; ".join(fault.problem for fault in why.faults) if isinstance(why, ConfigError) else str(why)
    return f"room in the grant for {' or '.join(map(str, rooms))} ({held})"


async def until_room(client: TPUClient, source: RoomSource, wanted: Wanted, policy: PollPolicy) -> None:
    """Wait until one of the rows has room, or the time is over: whoever asks next decides, without a gap between.

    :param client: the Cloud TPU API.
    :param source: where to look.
    :param wanted: what for, and for whom.
    :param policy: how often to look, since when, until when.
    """
    paced = replace(policy, longest=max(policy.poll, LONGEST_PAUSE), say_again=SAY_LONG_WAIT_AGAIN)
    loop, requests = PollLoop(paced, client.clock), _requests(client, source, wanted, policy.until)
    unused_since: dt.datetime | None = None
    with contextlib.suppress(WindowClosed, DeadlineExceeded):  # the task says how the run ends
        while (now := client.clock.now()) < wanted.ask_at:
            seen = await _look(client, source, requests, Fresh(loop.next_pause * YOUNG))
            if not seen.held:
                return
            unused_since = (unused_since or now) if seen.is_unused else None
            if unused_since is not None and now - unused_since >= source.turn:
                log.warning("the runs before this one do not take the room that they wait for: this one is next")
                await asyncio.to_thread(source.reservations.to_front, wanted.key.digest)
                return
            await loop.pause(room_for(wanted.rooms, seen.held))


def _requests(client: TPUClient, source: RoomSource, wanted: Wanted, until: dt.datetime) -> list[Request]:
    project, types = client.endpoint.project_id, source.catalogue.types
    return [
        Request(
            TPUSpec(project, room.zone, room.accelerator_type, room.runtime_version, room.tier),
            types[room.accelerator_type],
            until,
            owner=wanted.key.digest,
            airflow=wanted.key.airflow,
            around=wanted.around,
            names=lambda: source.airflows,
        )
        for room in wanted.rooms
    ]


async def _look(client: TPUClient, source: RoomSource, requests: list[Request], fresh: Fresh) -> _Seen:
    store = source.reservations
    try:
        snapshot = await shared_snapshot(client, fresh)
        # In a thread: Google's storage client would hold the event loop.
        reserved: Reservations = await shared(("reservations", store.uri), lambda: asyncio.to_thread(store.read), fresh)
    except (TransientError, RateLimited, GrantUnknown) as error:
        return _Seen(f"not known: {error}")
    inventory = reserved.added_to(snapshot.inventory(), client.clock.now())
    found = [_one(source.grant, request, inventory, reserved, client.clock.now()) for request in requests]
    if not all(one.held for one in found):
        return _Seen()
    return _Seen("; ".join(one.held for one in found), any(one.is_unused for one in found))


def _one(grant: Grant, request: Request, inventory: Inventory, reserved: Reservations, now: dt.datetime) -> _Seen:
    ahead = reserved.ahead_of(request.owner, request.airflow, now)
    _, objections = coverage(grant, request, inventory.also(ahead))
    if not objections:
        return _Seen()
    pool = (request.spec.zone, request.spec.tier.pool)
    rivals = [item for item in ahead if (item.zone, item.tier.pool) == pool]
    room = assign(grant, inventory.of_others(request.owner).items)
    is_free = not coverage(grant, request, inventory)[1]
    is_unused = is_free and any(room.has_room_for(item) for item in rivals)
    return _Seen("; ".join(fault.problem for fault in objections.faults), is_unused)
