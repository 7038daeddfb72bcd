# SPDX-License-Identifier: Apache-2.0
"""Wait until it is worth asking for a TPU again: after a pause, or when the grant has room."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Mapping
from typing import Any

from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.tpu.readiness import Wait
from airflow_tpu.lifecycle.waits.polling import SAY_LONG_WAIT_AGAIN, PollPolicy
from airflow_tpu.triggers.base import CloudTPUBaseTrigger


class CloudTPUCapacityTrigger(CloudTPUBaseTrigger):
    """Wait without a worker slot while a zone has no capacity, or the grant no room, and log what is waited for.

    :param watch: JSON of :class:`airflow_tpu.core.run.trigger_context.TriggerContext`.
    :param search: ``what`` is waited for, ``since`` when and until when (``resume_at``), in Unix seconds; ``rooms``,
        TPUs (:class:`airflow_tpu.core.grant.alternatives.Alternative`) for which the grant had no room because of other
        runs of this Airflow: room for any of them ends the wait; ``around``, the runs that end only after this one. A
        restarted trigger continues with the same ones.
    """

    def __init__(self, watch: Mapping[str, Any], search: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(watch, **kwargs)
        self.search = dict(search)

    def carried(self) -> dict[str, Any]:
        """The search."""
        return {"search": self.search}

    async def outcome(self) -> dict[str, Any]:
        """Wait until the next request is due."""
        await (self._until_room() if self.search.get("rooms") else self._pause())
        return {"status": "again"}

    async def _pause(self) -> None:
        wait = Wait(self._since, first_of(self.watch.deadline, self.watch.closing))
        while (left := self.search["resume_at"] - time.time()) > 0:
            self.log.info("%s", wait.line(self.search["what"], dt.datetime.now(dt.UTC), left))
            await asyncio.sleep(min(left, SAY_LONG_WAIT_AGAIN))

    async def _until_room(self) -> None:
        from airflow_tpu.clients.endpoints import cloud_failures
        from airflow_tpu.core import json_form
        from airflow_tpu.core.grant.alternatives import Alternative
        from airflow_tpu.lifecycle.connections import Connections
        from airflow_tpu.lifecycle.run_context import GrantContext
        from airflow_tpu.lifecycle.waits.room import RoomSource, Wanted, until_room

        watch, rooms = self.watch, json_form.from_json(tuple[Alternative, ...], self.search["rooms"])
        resume_at = dt.datetime.fromtimestamp(self.search["resume_at"], dt.UTC)
        policy = PollPolicy(watch.poll, watch.deadline, self._since, watch.closing)
        wanted = Wanted(watch.key, rooms, resume_at, frozenset(self.search["around"]))
        context = GrantContext(Connections.of(watch))

        def read() -> RoomSource:
            stores, known = context.stores, {}
            with contextlib.suppress(*cloud_failures()):  # then others are named by their identities
                known = stores.airflows.known()
            return RoomSource(context.grant, context.catalogue, stores.reservations, airflows=known)

        source = await asyncio.to_thread(read)  # grant and connection are read over the network
        async with await self.hook().client() as client:
            await until_room(client, source, wanted, policy)

    @property
    def _since(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.search["since"], dt.UTC)
