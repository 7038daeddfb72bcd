"""Wait until it is worth asking for capacity again."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Mapping
from typing import Any

from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.tpu.readiness import Wait
from airflow_tpu.triggers.base import CloudTPUBaseTrigger

_SAY_AGAIN = 600.0
"""Seconds after which an unchanged wait is reported again."""


class CloudTPUCapacityTrigger(CloudTPUBaseTrigger):
    """Wait without a worker slot while a zone has no capacity, and log what is waited for.

    :param watch: JSON of :class:`airflow_tpu.core.run.trigger_context.TriggerContext`.
    :param search: ``what`` is waited for, ``since`` when and until when (``resume_at``), in Unix seconds; a restarted
        trigger continues with the same ones.
    """

    def __init__(self, watch: Mapping[str, Any], search: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(watch, **kwargs)
        self.search = dict(search)

    def carried(self) -> dict[str, Any]:
        """The search."""
        return {"search": self.search}

    async def outcome(self) -> dict[str, Any]:
        """Wait until the next request is due."""
        until = first_of(self.watch.deadline, self.watch.closing)
        wait = Wait(dt.datetime.fromtimestamp(self.search["since"], dt.UTC), until)
        while (left := self.search["resume_at"] - time.time()) > 0:
            self.log.info("%s", wait.line(self.search["what"], dt.datetime.now(dt.UTC), left))
            await asyncio.sleep(min(left, _SAY_AGAIN))
        return {"status": "again"}
