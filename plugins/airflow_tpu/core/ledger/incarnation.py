# SPDX-License-Identifier: Apache-2.0
"""One incarnation as the usage counts it: which time counts, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from airflow_tpu.core.catalogue.catalogue import Catalogue, Price
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource

# Google does not charge a TPU that it takes back within its first minute.
GRACE = timedelta(minutes=1)
RUNNING = "running"
_ZERO = Decimal(0)
_MICROSECONDS_PER_HOUR = Decimal(3_600_000_000)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Billed:
    """Chip-hours of one incarnation that the grant does not cover.

    :param why: in words.
    :param chip_hours: how many.
    """

    why: str
    chip_hours: Decimal


@dataclass(frozen=True)
class Row:
    """One incarnation.

    :param opened: how it was asked for.
    :param state: why it ended, or ``running``.
    :param begins_at: start of its READY time, None if it never was. While it is running this is the moment it was
        asked for, because the ledger does not know better; that is never too little.
    :param ends_at: end of its READY time; now, while it is running.
    :param chip_hours: chips times hours that count.
    :param idle_chip_hours: the part without training, None while it is running.
    :param lost_chip_hours: the part that trained after the newest safe checkpoint and was lost with the TPU; None if
        it is not known.
    :param price: list price of a chip-hour, None if none is published.
    :param estimated: the times are an upper bound or were observed by us, not told by the API.
    :param artifact_bytes: bytes it wrote to the bucket.
    :param workers: its worker VMs, None for a type that the catalogue does not know.
    :param excess: chip-hours that are billed although a row covered it when it was requested.
    """

    opened: Opened
    state: str
    begins_at: datetime | None
    ends_at: datetime | None
    chip_hours: Decimal = _ZERO
    idle_chip_hours: Decimal | None = _ZERO
    lost_chip_hours: Decimal | None = _ZERO
    price: Price | None = None
    estimated: bool = False
    artifact_bytes: int = 0
    workers: int | None = None
    excess: tuple[Billed, ...] = ()

    @property
    def covered(self) -> bool:
        """Whether a row of the grant covered the TPU when it was requested."""
        return self.opened.allowance is not None

    @property
    def covered_chip_hours(self) -> Decimal:
        """Chip-hours that the grant covers."""
        return self.chip_hours - sum((part.chip_hours for part in self.billed), _ZERO)

    @property
    def billed(self) -> tuple[Billed, ...]:
        """Chip-hours that it does not cover, by the reason."""
        if self.covered or not self.chip_hours:
            return self.excess
        return (Billed(self.opened.paid_reason or "no reason was given", self.chip_hours),)

    @property
    def wait_seconds(self) -> float | None:
        """From the request to READY, None if it never was, or is not known to be."""
        if self.begins_at is None or self.state == RUNNING:
            return None
        return max(0.0, (self.begins_at - self.opened.requested_at).total_seconds())

    @property
    def hours(self) -> Decimal:
        """Hours the machine was there, a first minute that is not charged included."""
        return hours_between(self.begins_at, self.ends_at)

    def days(self) -> Iterator[tuple[str, Decimal]]:
        """Chip-hours that count, by UTC day."""
        begin, end = self.begins_at, self.ends_at
        if begin is None or end is None or not self.chip_hours:
            return
        while begin < end:
            midnight = datetime(begin.year, begin.month, begin.day, tzinfo=UTC) + _DAY
            yield f"{begin:%Y-%m-%d}", hours_between(begin, min(midnight, end)) * self.opened.chips
            begin = midnight


def hours_between(begin: datetime | None, end: datetime | None) -> Decimal:
    """Exact hours between two instants, 0 if one is missing or they are the wrong way round."""
    if begin is None or end is None or end <= begin:
        return _ZERO
    return Decimal((end - begin) // timedelta(microseconds=1)) / _MICROSECONDS_PER_HOUR


def unpriced(opened: Opened, closed: Closed) -> Row:
    """Count one ended incarnation without its price: a table that is wrong must not keep an end out of the ledger."""
    return row_of(opened, closed, Catalogue({}, {}, {}, {}), opened.requested_at)


def row_of(opened: Opened, closed: Closed | None, catalogue: Catalogue, now: datetime) -> Row:
    """Count one incarnation.

    :param closed: None while it is running, or its end has not been noticed.
    """
    price = catalogue.price(opened.accelerator_type, opened.zone, opened.tier)
    kind = catalogue.types.get(opened.accelerator_type)
    workers = kind.hosts if kind else None
    if closed is None:
        asked, until = opened.requested_at.astimezone(UTC), now.astimezone(UTC)
        chip_hours = hours_between(asked, until) * opened.chips
        return Row(opened, RUNNING, asked, until, chip_hours, None, price=price, estimated=True, workers=workers)
    begin, end = closed.ready_at, closed.ended_at
    hours = _ZERO if _taken_at_once(closed) else hours_between(begin, end)
    idle = max(_ZERO, hours - _hours(closed.training_seconds))
    lost = closed.lost_seconds
    return Row(
        opened,
        str(closed.end_reason),
        begin and begin.astimezone(UTC),
        end and end.astimezone(UTC) if begin else None,
        hours * opened.chips,
        idle * opened.chips,
        None if lost is None or not math.isfinite(lost) else min(hours, _hours(lost)) * opened.chips,
        price,
        estimated=closed.time_source is not TimeSource.API,
        artifact_bytes=closed.artifact_bytes,
        workers=workers,
    )


def _taken_at_once(closed: Closed) -> bool:
    if closed.ready_at is None or closed.ended_at is None or closed.end_reason is not EndReason.PREEMPTED:
        return False
    return closed.ended_at - closed.ready_at < GRACE


def _hours(seconds: float) -> Decimal:
    return Decimal(str(seconds)) / 3600 if math.isfinite(seconds) and seconds > 0 else _ZERO
