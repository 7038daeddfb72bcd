# SPDX-License-Identifier: Apache-2.0
"""The queueing policy of a request: the earliest and the latest instant at which it may be provisioned."""

from __future__ import annotations

from typing import Any

from localcloud.tpu_state.queued.record import QueuedRecord


def valid_until(record: QueuedRecord, now: float) -> float | None:
    """Return the latest instant, in seconds since the epoch like ``now``; None: any."""
    return _instant(record, now, "valid_until", "end_time")


def valid_after(record: QueuedRecord, now: float) -> float:
    """Return the earliest instant, in seconds since the epoch like ``now``."""
    return _instant(record, now, "valid_after", "start_time") or now


def _instant(record: QueuedRecord, now: float, policy: str, bound: str) -> float | None:
    asked: Any = type(record.template).pb(record.template).queueing_policy
    chosen = asked.WhichOneof("start_timing_constraints")
    if chosen == f"{policy}_duration":
        return now + float(getattr(asked, chosen).ToTimedelta().total_seconds())
    if chosen == f"{policy}_time":
        return float(getattr(asked, chosen).ToNanoseconds()) / 1e9
    if chosen == "valid_interval":
        return float(getattr(asked.valid_interval, bound).ToNanoseconds()) / 1e9
    return None
