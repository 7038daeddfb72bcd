# SPDX-License-Identifier: Apache-2.0
"""What the ledger records, as metrics through Airflow's own ``Stats``: StatsD, Datadog or OpenTelemetry.

One incarnation is counted once, where its *closed* event is written: a task, a trigger's task, the reaper. The tags are
``accelerator_type``, ``tier``, ``zone`` and ``end_reason``; plain StatsD has no tags and gets the sums.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.ledger.incarnation import Row

INCARNATIONS = "tpu.incarnations"
"""Counter: TPUs that have ended, those that never became READY included."""
PREEMPTIONS = "tpu.preemptions"
"""Counter: of these, taken back by Google."""
CHIP_SECONDS = "tpu.chip_seconds"
"""Counter: chips times seconds of READY that count; 3600 are a chip-hour. Airflow's counters take whole numbers."""
IDLE_CHIP_SECONDS = "tpu.idle_chip_seconds"
"""Counter: of these, without training."""
LOST_WORK_SECONDS = "tpu.lost_work_seconds"
"""Counter: seconds of training after the newest safe checkpoint, lost with the TPU; what is unknown is not in it."""
WAIT = "tpu.wait"
"""Timer: from the request to READY, of those that became READY."""
_HOUR = 3600


def count(row: Row) -> None:
    """Count an incarnation that has just ended.

    :param row: how it was asked for, how it ended and what it used; no counter has a price.
    """
    from airflow.sdk.observability import stats

    opened = row.opened
    tags = {
        "accelerator_type": opened.accelerator_type,
        "tier": str(opened.tier),
        "zone": opened.zone,
        "end_reason": row.state,
    }
    for name, number in counters(row).items():
        stats.incr(name, number, tags=tags)
    if row.wait_seconds is not None:
        stats.timing(WAIT, timedelta(seconds=row.wait_seconds), tags=tags)


def counters(row: Row) -> dict[str, int]:
    """How much one ended incarnation adds to each counter; what it does not add to is left out."""
    lost = row.lost_chip_hours or Decimal(0)
    found = {
        INCARNATIONS: 1,
        PREEMPTIONS: int(row.state == EndReason.PREEMPTED),
        CHIP_SECONDS: round(row.chip_hours * _HOUR),
        IDLE_CHIP_SECONDS: round((row.idle_chip_hours or Decimal(0)) * _HOUR),
        LOST_WORK_SECONDS: round(lost * _HOUR / row.opened.chips),
    }
    return {name: number for name, number in found.items() if number}
