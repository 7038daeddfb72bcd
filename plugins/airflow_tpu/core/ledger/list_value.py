# SPDX-License-Identifier: Apache-2.0
"""What covered chip-hours would have cost, by type, zone and price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from airflow_tpu.core.catalogue.catalogue import Price
from airflow_tpu.core.ledger.billable import NotFree
from airflow_tpu.core.ledger.incarnation import Row


@dataclass(frozen=True)
class Priced:
    """Chip-hours of one kind.

    :param kind: type, quota pool and zone.
    :param price: list price of a chip-hour, None if none is published.
    :param chip_hours: how many.
    """

    kind: str
    price: Price | None
    chip_hours: Decimal

    @property
    def value(self) -> Decimal | None:
        """US dollars at list price; unknown is never zero."""
        return None if self.price is None else self.chip_hours * self.price.usd_per_chip_hour


def not_paid(rows: Iterable[Row]) -> list[Priced]:
    """What the grant covers, by kind and price, sorted by kind."""
    groups: dict[tuple[str, Price | None], Decimal] = {}
    for row in rows:
        if row.covered_chip_hours:
            opened = row.opened
            key = (f"{opened.accelerator_type} {opened.tier.pool}, {opened.zone}", row.price)
            groups[key] = groups.get(key, Decimal(0)) + row.covered_chip_hours
    return sorted((Priced(kind, price, hours) for (kind, price), hours in groups.items()), key=lambda line: line.kind)


def sums(lines: Iterable[NotFree]) -> tuple[Decimal, int]:
    """US dollars of the lines whose price is known, and the number of the others."""
    lines = tuple(lines)
    known = sum((line.usd for line in lines if line.usd is not None), Decimal(0))
    return known, sum(line.usd is None for line in lines)
