"""Wait until it is worth asking for capacity again."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Mapping
from typing import Any

from airflow_tpu.core.readiness import Wait
from airflow_tpu.triggers.base import CloudTPUBaseTrigger

_SAY_AGAIN = 600.0
"""Seconds after which an unchanged wait is reported again."""


class CloudTPUCapacityTrigger(CloudTPUBaseTrigger):
    """Hold no worker slot while a zone has no capacity, and say what is waited for.

    :param watch: JSON of :class:`airflow_tpu.core.watch.Watch`.
    :param hunt: ``what`` is waited for, ``since`` when and until when (``resume_at``), in Unix seconds; a restarted
        trigger goes on with the same ones.
    """

    def __init__(self, watch: Mapping[str, Any], hunt: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(watch, **kwargs)
        self.hunt = dict(hunt)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        arguments = {"watch": self.watch.to_json(), "hunt": self.hunt}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def outcome(self) -> dict[str, Any]:
        """Nothing but the fact that the time has come."""
        until = self.watch.closing or self.watch.deadline
        wait = Wait(dt.datetime.fromtimestamp(self.hunt["since"], dt.UTC), min(until, self.watch.deadline))
        while (left := self.hunt["resume_at"] - time.time()) > 0:
            self.log.info("%s", wait.line(self.hunt["what"], dt.datetime.now(dt.UTC), left))
            await asyncio.sleep(min(left, _SAY_AGAIN))
        return {"status": "again"}
