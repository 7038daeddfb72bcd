# SPDX-License-Identifier: Apache-2.0
"""What the API says of a node that may be lost."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import logging
from typing import TYPE_CHECKING

from airflow_tpu.clients import tpu_list_cache
from airflow_tpu.clients.tpu_list_cache import Fresh
from airflow_tpu.core.tpu.outcome import UNREACHABLE_LIMIT, Observation, loss_of, silence_of
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.errors import (
    RateLimited,
    ResourceNotFound,
    TPUError,
    TPULost,
    TPUVanished,
    TransientError,
)
from airflow_tpu.lifecycle.waits.polling import YOUNG

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import TPUView


log = logging.getLogger(__name__)


async def observe(client: TPUClient, node: ResourceName) -> Observation:
    """Ask the API about a node, and about its queued resource if it is not well.

    :param client: the Cloud TPU API.
    :param node: which.
    """
    try:
        view = await client.node(node)
    except ResourceNotFound:
        view = None
    queued = None
    if view is None or view.phase in (Phase.LOST, Phase.DELETING):
        with contextlib.suppress(ResourceNotFound):
            queued = await client.queued_resource(node.queued)
    if view is not None and view.phase is Phase.UNKNOWN:
        _tell_unknown(view.state, view.health)
    return Observation(node, view, queued, client.clock.now())


@functools.cache
def _tell_unknown(state: str, health: str) -> None:
    """Once per process: it is looked again and again until the state is one that we know."""
    log.warning(
        "node state %r with health %r is unknown to this version: looking again until it changes", state, health
    )


async def living(client: TPUClient, node: ResourceName) -> TPUView:
    """A node that is neither gone nor going.

    :raises TPULost: it is.
    """
    seen = await observe(client, node)
    lost = loss_of(seen)
    if lost is not None or seen.node is None:
        raise lost or TPUVanished(f"node {node} is unknown to the API.", seen.at)
    return seen.node


async def lost_state(
    client: TPUClient,
    node: ResourceName,
    silent_for: dt.timedelta = dt.timedelta(0),
    limit: dt.timedelta = UNREACHABLE_LIMIT,
) -> TPULost | None:
    """Ask the API whether a node is gone; neither an SSH error nor an API that stumbles decides.

    :param silent_for: how long nothing has answered there.
    :param limit: how long that may last.
    """
    try:
        return silence_of(await observe(client, node), silent_for, limit)
    except (TransientError, RateLimited) as error:
        log.info("state of %s unknown, it counts as alive until the next look: %s", node, error)
    return None


async def until_lost(client: TPUClient, node: ResourceName, poll: float) -> TPULost:
    """Watch a node until it is gone or going, and say how; an API that stumbles says nothing.

    :param client: the Cloud TPU API.
    :param node: which.
    :param poll: seconds between two looks.
    """
    while True:
        await asyncio.sleep(poll)
        try:
            view = (await tpu_list_cache.nodes(client, node.zone, Fresh(poll * YOUNG))).get(node)
        except TPUError as error:
            log.debug("state of %s unknown, looking again in %.0f s: %s", node, poll, error)
            continue
        if view is None or view.phase in (Phase.LOST, Phase.DELETING):
            lost = await lost_state(client, node)
            if lost is not None:
                return lost
