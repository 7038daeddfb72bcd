# SPDX-License-Identifier: Apache-2.0
"""What one interruption of a run has cost, as a person sees it in the log and in the UI."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any

from airflow_tpu.core.catalogue.catalogue import Price
from airflow_tpu.core.run.messages import Heartbeat
from airflow_tpu.core.tpu.outcome import UNREACHABLE_LIMIT


@dataclass(frozen=True)
class Reached:
    """How far a run was when it was last heard of.

    :param step: training step, from the script's ``progress.json``; None if it writes none.
    :param safe_step: training steps of the newest checkpoint in the bucket, None while there is none.
    :param safe_at: when that one was safe, in Unix seconds.
    """

    step: int | None = None
    safe_step: int | None = None
    safe_at: float | None = None

    def after(self, heartbeat: Heartbeat) -> Reached:
        """What is known after one more sign of life; a field that it leaves out stays as it was."""
        progress, mirror = heartbeat.progress or {}, heartbeat.mirror or {}
        found = replace(self, step=_count(progress.get("step"), self.step))
        if not mirror.get("last_at"):
            return found
        # Both of one checkpoint: a newer one without a step is not that of the step before.
        return replace(found, safe_step=_count(mirror.get("last_step"), None), safe_at=mirror["last_at"])


@dataclass(frozen=True)
class SilenceLimit:
    """How long a worker may not answer while the API calls its node READY.

    :param seconds: how long, ``unreachable_minutes`` of the form.
    :param cost: what the TPU costs meanwhile, in words; empty where that is not known.
    """

    seconds: float = UNREACHABLE_LIMIT.total_seconds()
    cost: str = ""

    @classmethod
    def with_cost(cls, minutes: int, chips: int, price: Price | None) -> SilenceLimit:
        """The same with what an hour of the TPU costs.

        :param minutes: how long.
        :param chips: of the TPU.
        :param price: list price of a chip-hour, None if none is published.
        """
        usd = "at a price that is not published"
        if price is not None:
            usd = f"at {chips * price.usd_per_chip_hour:.2f} USD an hour by the price list of {price.date}"
        return cls(minutes * 60.0, f"its {chips} chip(s) are held meanwhile, {usd}, free where the grant covers them")

    @property
    def limit(self) -> dt.timedelta:
        """How long."""
        return dt.timedelta(seconds=self.seconds)


@dataclass(frozen=True)
class SafeCheckpoint:
    """The newest complete checkpoint of a run in the bucket.

    :param attempt: number of the attempt that saved it.
    :param order: grows from one to the next; the step where that is known.
    :param step: training steps, None if it does not tell.
    :param at: when it was saved, in Unix seconds; None if it does not tell.
    """

    attempt: int
    order: int
    step: int | None = None
    at: float | None = None

    def __str__(self) -> str:
        return "a checkpoint without a step" if self.step is None else f"step {self.step}"


@dataclass(frozen=True)
class Interruption:
    """One loss of a run, the n-th of those allowed.

    :param reason: class of the error.
    :param number: how many there have been, this one included.
    :param allowed: ``max_preemptions`` of the form.
    :param step: training step that was reached, None if unknown.
    :param safe_step: training steps of the newest checkpoint in the bucket, None if there is none.
    :param lost_seconds: work that has to be done again, None if unknown.
    :param unnumbered: there is a checkpoint in the bucket, and it does not tell its step.
    """

    reason: str
    number: int
    allowed: int
    step: int | None = None
    safe_step: int | None = None
    lost_seconds: float | None = None
    unnumbered: bool = False

    def __str__(self) -> str:
        step = "step not known" if self.step is None else f"step {self.step} reached"
        safe = "a checkpoint without a step is safe" if self.unnumbered else "no checkpoint is safe"
        safe = safe if self.safe_step is None else f"step {self.safe_step} is safe"
        lost = "lost work not known" if self.lost_seconds is None else f"{self.lost_seconds:.0f} s of work lost"
        return f"interruption {self.number} of {self.allowed} allowed ({self.reason}): {step}, {safe}, {lost}"


def lost_seconds(ended: dt.datetime, started: dt.datetime | None, safe_at: float | None) -> float | None:
    """Work that has to be done again after an attempt was interrupted.

    :param ended: when the attempt ended.
    :param started: when it was started, None if unknown.
    :param safe_at: when its newest checkpoint was safe, in Unix seconds; None without one.
    :return: None if neither is known.
    """
    points = [point for point in (started.timestamp() if started else None, safe_at) if point is not None]
    return max(0.0, ended.timestamp() - max(points)) if points else None


def _count(found: Any, known: int | None) -> int | None:
    """A script may write anything; only a whole number is a step."""
    return int(found) if isinstance(found, int) and not isinstance(found, bool) else known
