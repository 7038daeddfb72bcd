# SPDX-License-Identifier: Apache-2.0
"""What an attempt found to go on from, and what its predecessor had lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger.events import Closed
from airflow_tpu.core.run.result import resumption
from airflow_tpu.errors import TPUError

if TYPE_CHECKING:
    import datetime as dt

    from airflow_tpu.core.run.result import RunResult
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)


def tell_resumption(run: RunContext, result: RunResult, write: Callable[[str], None]) -> None:
    """Say where the attempt resumed, with the lost seconds if the ledger knows when the TPU before it ended.

    :param run: clients and stores.
    :param result: of the attempt.
    :param write: gets the line, if there is one.
    """
    if result.resumed_attempt is not None:
        write(resumption(result, _ends(run)))


def _ends(run: RunContext) -> list[dt.datetime]:
    """It is only for the log: a ledger that cannot be read now changes nothing."""
    try:
        events = run.stores.ledger.events(run.key)
    except TPUError as error:
        log.warning("how much work was lost is not known: %s", error)
        return []
    return [event.ended_at for event in events if isinstance(event, Closed) and event.ended_at is not None]
