# SPDX-License-Identifier: Apache-2.0
"""What the ledger adds up to: chip-hours, their list value, and everything that is not free. A pure fold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from airflow_tpu.core.catalogue.catalogue import Catalogue, Price
from airflow_tpu.core.ledger.billable import NotFree, StoredBytes, not_free
from airflow_tpu.core.ledger.coverage import judged
from airflow_tpu.core.ledger.events import Closed, Opened
from airflow_tpu.core.ledger.incarnation import RUNNING, Row, row_of
from airflow_tpu.core.ledger.ledger_filter import LedgerFilter
from airflow_tpu.core.ledger.transfers import across_regions

NOT_COVERED = "NOT COVERED"


@dataclass(frozen=True)
class Total:
    """Chip-hours and their list value over several incarnations.

    :param chip_hours: all of them.
    :param list_value: US dollars of those with a known price.
    :param unpriced: chip-hours whose price is unknown; their value is missing in ``list_value``.
    """

    chip_hours: Decimal = Decimal(0)
    list_value: Decimal = Decimal(0)
    unpriced: Decimal = Decimal(0)

    @property
    def known_value(self) -> Decimal | None:
        """The list value, None if not one price is known: unknown is never zero."""
        return None if self.unpriced and self.unpriced == self.chip_hours else self.list_value

    @classmethod
    def of(cls, hours: Mapping[Price | None, Decimal]) -> Total:
        """The total of chip-hours by their price."""
        value = sum((each * price.usd_per_chip_hour for price, each in hours.items() if price), Decimal(0))
        return cls(sum(hours.values(), Decimal(0)), value, hours.get(None, Decimal(0)))


@dataclass(frozen=True)
class Usage:
    """The fold of a ledger.

    :param rows: one per incarnation, in the order they were asked for.
    :param covered: total of what the grant covers.
    :param not_covered: total of what it does not.
    :param idle: chip-hours READY without training, of incarnations that have ended.
    :param lost: chip-hours trained after the newest safe checkpoint and lost with the TPU, as far as they are known.
    :param by_run: totals by DAG run, ``DAG id / run id``; with the identity behind it where two Airflows have one of
        that name.
    :param by_allowance: totals by the grant's row; what no row covers is under ``NOT COVERED``.
    :param by_dag: totals by DAG.
    :param by_day: totals by UTC day.
    :param not_free: everything that is billed.
    :param now: instant of the fold.
    """

    rows: tuple[Row, ...]
    covered: Total
    not_covered: Total
    idle: Decimal
    lost: Decimal
    by_run: Mapping[str, Total]
    by_allowance: Mapping[str, Total]
    by_dag: Mapping[str, Total]
    by_day: Mapping[str, Total]
    not_free: tuple[NotFree, ...]
    now: datetime

    @property
    def running(self) -> tuple[Row, ...]:
        """Incarnations without an end: running, or leaked."""
        return tuple(row for row in self.rows if row.state == RUNNING)

    @property
    def lost_unknown(self) -> int:
        """Number of incarnations with an unknown loss of work."""
        return sum(row.lost_chip_hours is None for row in self.rows)


def fold(
    events: Iterable[Opened | Closed],
    catalogue: Catalogue,
    now: datetime,
    stored: StoredBytes | None = None,
    wanted: LedgerFilter | None = None,
) -> Usage:
    """Add up a ledger, or a part of it.

    :param events: of the whole ledger, in any order; a repeated one counts once. A part is chosen by ``wanted``, since
        what lived beside it decides whether it was covered.
    :param catalogue: gives the list prices and the rates of traffic between regions.
    :param now: aware instant up to which a running incarnation counts.
    :param stored: adds what the bucket keeps to what is not free.
    :param wanted: which incarnations count, None for all.
    """
    every = (row_of(opened, closed, catalogue, now) for opened, closed in paired(events))
    rows = tuple(row for row in judged(every, catalogue.generations) if wanted is None or wanted.wants(row.opened))
    return Usage(
        rows=rows,
        covered=_total((row.covered_chip_hours, row.price) for row in rows),
        not_covered=_total((part.chip_hours, row.price) for row in rows for part in row.billed),
        idle=sum((row.idle_chip_hours or Decimal(0) for row in rows), Decimal(0)),
        lost=sum((row.lost_chip_hours or Decimal(0) for row in rows), Decimal(0)),
        by_run=_grouped(_by_run(rows)),
        by_allowance=_grouped(part for row in rows for part in _by_allowance(row)),
        by_dag=_grouped((row.opened.dag_id, row.chip_hours, row.price) for row in rows),
        by_day=_grouped((day, hours, row.price) for row in rows for day, hours in row.days()),
        not_free=(*not_free(rows, stored), *across_regions(rows, catalogue.transfer)),
        now=now,
    )


def paired(events: Iterable[Opened | Closed]) -> list[tuple[Opened, Closed | None]]:
    """Each incarnation with its end, in the order they were asked for.

    An end without a beginning tells neither type nor chips: it is left out, as the reader of the ledger has reported.
    """
    opened: dict[str, Opened] = {}
    closed: dict[str, Closed] = {}
    for event in events:
        if isinstance(event, Opened):
            opened[event.node_id] = event
        else:
            closed[event.node_id] = event
    ordered = sorted(opened.values(), key=lambda event: (event.requested_at, event.node_id))
    return [(event, closed.get(event.node_id)) for event in ordered]


def _total(parts: Iterable[tuple[Decimal, Price | None]]) -> Total:
    return _grouped(("", chip_hours, price) for chip_hours, price in parts).get("", Total())


def _by_run(rows: tuple[Row, ...]) -> Iterator[tuple[str, Decimal, Price | None]]:
    names = [f"{row.opened.dag_id} / {row.opened.run_id}" for row in rows]
    airflows: dict[str, set[str]] = {}
    for name, row in zip(names, rows, strict=True):
        airflows.setdefault(name, set()).add(row.opened.airflow)
    for name, row in zip(names, rows, strict=True):
        whose = f" of Airflow {row.opened.airflow or 'unknown'}" if len(airflows[name]) > 1 else ""
        yield f"{name}{whose}", row.chip_hours, row.price


def _by_allowance(row: Row) -> Iterator[tuple[str, Decimal, Price | None]]:
    if row.opened.allowance is not None:
        yield row.opened.allowance, row.covered_chip_hours, row.price
    if row.opened.allowance is None or row.excess:
        yield NOT_COVERED, row.chip_hours - row.covered_chip_hours, row.price


def _grouped(parts: Iterable[tuple[str, Decimal, Price | None]]) -> dict[str, Total]:
    """Totals by key. Chip-hours of one price are added up first: a ledger has many rows and few prices."""
    hours: dict[str, dict[Price | None, Decimal]] = {}
    for key, chip_hours, price in parts:
        of_key = hours.setdefault(key, {})
        of_key[price] = of_key.get(price, Decimal(0)) + chip_hours
    return {key: Total.of(hours[key]) for key in sorted(hours)}
