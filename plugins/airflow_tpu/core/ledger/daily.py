# SPDX-License-Identifier: Apache-2.0
"""Chip-hours by UTC day and DAG: what every chart of the usage shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from airflow_tpu.core.ledger.incarnation import Row

OTHERS = "other DAGs"
SHOWN_DAGS = 7
"""More colours than this cannot be told apart; the smallest DAGs share one series."""

_Table = dict[str, dict[str, Decimal]]


@dataclass(frozen=True)
class Series:
    """The days of one DAG.

    :param name: the DAG, or :data:`OTHERS`.
    :param values: chip-hours of each day.
    """

    name: str
    values: tuple[Decimal, ...]

    @property
    def total(self) -> Decimal:
        """Chip-hours of all days."""
        return sum(self.values, Decimal(0))


@dataclass(frozen=True)
class Daily:
    """Chip-hours stacked by DAG.

    :param days: every day, ``2026-11-27``; one without use is a zero in each series.
    :param series: largest first.
    """

    days: tuple[str, ...]
    series: tuple[Series, ...]

    def total(self, number: int) -> Decimal:
        """Chip-hours of one day.

        :param number: its place in ``days``.
        """
        return sum((series.values[number] for series in self.series), Decimal(0))

    @property
    def highest(self) -> Decimal:
        """Chip-hours of the day with the most."""
        return max((self.total(number) for number in range(len(self.days))), default=Decimal(0))


def span(first: date, last: date) -> tuple[str, ...]:
    """Every day from the first to the last."""
    return tuple(f"{first + timedelta(days=number)}" for number in range((last - first).days + 1))


def used_days(rows: Iterable[Row]) -> list[str]:
    """Days on which a TPU was READY for a time that counts, in order."""
    return sorted({day for row in rows for day, _ in row.days()})


def daily(rows: Iterable[Row], days: Sequence[str], name_of: Callable[[str], str] = str) -> Daily:
    """Add up chip-hours by day and DAG.

    :param rows: incarnations.
    :param days: the days to show; what was used on others is left out.
    :param name_of: what a DAG is called in the answer; DAGs of one name are one series.
    """
    table: _Table = {day: {} for day in days}
    for row in rows:
        name = name_of(row.opened.dag_id)
        for day, hours in row.days():
            if day in table:
                table[day][name] = table[day].get(name, Decimal(0)) + hours
    return Daily(tuple(days), tuple(_series(table, _largest(table))))


def _largest(table: _Table) -> list[str]:
    totals: dict[str, Decimal] = {}
    for of_day in table.values():
        for name, hours in of_day.items():
            totals[name] = totals.get(name, Decimal(0)) + hours
    return sorted(totals, key=lambda name: (-totals[name], name))


def _series(table: _Table, names: list[str]) -> Iterable[Series]:
    shown = names if len(names) <= SHOWN_DAGS + 1 else names[:SHOWN_DAGS]
    for name in shown:
        yield Series(name, tuple(of_day.get(name, Decimal(0)) for of_day in table.values()))
    if rest := names[len(shown) :]:
        sums = (sum((of_day.get(name, Decimal(0)) for name in rest), Decimal(0)) for of_day in table.values())
        yield Series(OTHERS, tuple(sums))
