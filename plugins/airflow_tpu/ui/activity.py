"""What the ledger tells: chip-hours by day and DAG, list value not paid, what is not free, preemptions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from airflow_tpu.core.billable import NOT_MEASURED
from airflow_tpu.core.catalogue import Price
from airflow_tpu.core.incarnation import Row
from airflow_tpu.core.ledger import EndReason
from airflow_tpu.core.table import chip_hours, duration, usd
from airflow_tpu.core.usage import Usage
from airflow_tpu.ui.parts import NUMBER, TEXT, UNKNOWN, WORD, Cell, Reader, cell, moment, table, unknown

SHOWN_DAYS = 60
SHOWN_DAGS = 7
SHOWN_PREEMPTIONS = 10
OTHERS = "other DAGs"
VALUE_COLUMNS = (
    ("Type and zone", TEXT),
    ("Chip-hours", NUMBER),
    ("USD per chip-hour", NUMBER),
    ("List value", NUMBER),
    ("Price of", WORD),
    ("Source", TEXT),
)
BILLED_COLUMNS = (
    ("What", TEXT),
    ("Amount", NUMBER),
    ("Unit", WORD),
    ("USD at list price", NUMBER),
    ("Where the figure comes from", TEXT),
)
PREEMPTION_COLUMNS = (
    ("When", WORD),
    ("TPU", TEXT),
    ("Type", WORD),
    ("Zone", WORD),
    ("READY for", NUMBER),
    ("Run", TEXT),
)

ByDay = dict[str, dict[str, Decimal]]


def chart(usage: Usage | None, reader: Reader) -> dict[str, Any] | None:
    """Chip-hours per UTC day, stacked by DAG; a day without use is a zero, an unreadable ledger is None."""
    if usage is None:
        return None
    by_day = _by_day(usage.rows, reader)
    days = _days(by_day, usage.now)
    names = _largest(by_day, days)
    values = [[_value(by_day.get(day, {}), name, names) for day in days] for name in names]
    rows = [
        [cell(day), *(_hours(by_day[day], name, names) for name in names)] for day in reversed(days) if day in by_day
    ]
    columns = [("Day (UTC)", WORD), *((name, NUMBER) for name in names)]
    series = [{"name": name, "values": line} for name, line in zip(names, values, strict=True)]
    empty = "no TPU has been READY in this time"
    more = f"the last {SHOWN_DAYS} days; days without use are left out of this table" if rows else ""
    return {"days": days, "series": series, "table": table(columns, rows, empty, more)}


def _by_day(rows: Iterable[Row], reader: Reader) -> ByDay:
    found: ByDay = {}
    for row in rows:
        dag = reader.dag(row.opened.dag_id)
        for day, hours in row.days():
            of_day = found.setdefault(day, {})
            of_day[dag] = of_day.get(dag, Decimal(0)) + hours
    return found


def _days(by_day: ByDay, now: datetime) -> list[str]:
    """Every day from the first one with use to today, so that a gap is seen as one."""
    today = now.date()
    first = max(date.fromisoformat(min(by_day, default=f"{today}")), today - timedelta(days=SHOWN_DAYS - 1))
    return [f"{first + timedelta(days=number)}" for number in range((today - first).days + 1)]


def _largest(by_day: ByDay, days: list[str]) -> list[str]:
    totals: dict[str, Decimal] = {}
    for day in days:
        for dag, hours in by_day.get(day, {}).items():
            totals[dag] = totals.get(dag, Decimal(0)) + hours
    names = sorted(totals, key=lambda dag: (-totals[dag], dag))
    return names if len(names) <= SHOWN_DAGS + 1 else [*names[:SHOWN_DAGS], OTHERS]


def _sum(of_day: dict[str, Decimal], name: str, names: list[str]) -> Decimal:
    if name == OTHERS and name not in of_day:
        return sum((hours for dag, hours in of_day.items() if dag not in names), Decimal(0))
    return of_day.get(name, Decimal(0))


def _value(of_day: dict[str, Decimal], name: str, names: list[str]) -> float:
    return round(float(_sum(of_day, name, names)), 6)


def _hours(of_day: dict[str, Decimal], name: str, names: list[str]) -> Cell:
    return cell(chip_hours(_sum(of_day, name, names)))


def value_table(usage: Usage | None) -> dict[str, Any]:
    """What the covered chip-hours would have cost, each price with its date and source."""
    groups: dict[tuple[str, Price | None], Decimal] = {}
    for row in usage.rows if usage else ():
        if row.covered and row.chip_hours:
            kind = f"{row.opened.accelerator_type} {row.opened.tier.pool}, {row.opened.zone}"
            groups[kind, row.price] = groups.get((kind, row.price), Decimal(0)) + row.chip_hours
    rows = [
        _value_row(kind, price, hours) for (kind, price), hours in sorted(groups.items(), key=lambda item: item[0][0])
    ]
    empty = "no covered TPU has been READY yet" if usage else UNKNOWN
    return table(VALUE_COLUMNS, rows, empty, _total(usage) if rows and usage else "")


def _value_row(kind: str, price: Price | None, hours: Decimal) -> list[Cell]:
    if price is None:
        nobody = "nobody has published a price"
        return [cell(kind), cell(chip_hours(hours)), unknown(), unknown(nobody), unknown(), unknown()]
    each = price.usd_per_chip_hour
    source = cell(price.source)
    return [
        cell(kind),
        cell(chip_hours(hours)),
        cell(f"{each.normalize():f}"),
        cell(usd(hours * each)),
        cell(price.date),
        source,
    ]


def _total(usage: Usage) -> str:
    total = usage.covered
    hours = f"total: {chip_hours(total.chip_hours)} chip-hours"
    if total.known_value is None:
        return f"{hours}, their value is {UNKNOWN}"
    more = f", and {UNKNOWN} for {chip_hours(total.unpriced)} chip-hours" if total.unpriced else ""
    return f"{hours}, {usd(total.known_value)}{more}"


def billed_table(usage: Usage | None) -> dict[str, Any]:
    """Everything of the ledger that is billed; what is not measured is said, not counted as nothing."""
    rows = [
        [
            cell(line.what),
            unknown() if line.quantity is None else cell(chip_hours(line.quantity)),
            cell(line.unit),
            unknown() if line.usd is None else cell(usd(line.usd), tone="bad"),
            cell(line.note),
        ]
        for line in (usage.not_free if usage else ())
    ]
    empty = "the ledger holds nothing that is billed" if usage else UNKNOWN
    return table(BILLED_COLUMNS, rows, empty, f"Not measured here, and not free: {NOT_MEASURED}.")


def preempted(usage: Usage) -> list[Row]:
    """Incarnations that Google took back, newest first."""
    rows = [row for row in usage.rows if row.state == EndReason.PREEMPTED]
    return sorted(rows, key=lambda row: row.ends_at or row.opened.requested_at, reverse=True)


def preemption_table(usage: Usage | None, reader: Reader) -> dict[str, Any]:
    """The newest preemptions."""
    rows = preempted(usage) if usage else []
    cells = [_preemption(row, reader) for row in rows[:SHOWN_PREEMPTIONS]]
    more = f"and {len(rows) - SHOWN_PREEMPTIONS} earlier ones" if len(rows) > SHOWN_PREEMPTIONS else ""
    return table(PREEMPTION_COLUMNS, cells, "none so far" if usage else UNKNOWN, more)


def _preemption(row: Row, reader: Reader) -> list[Cell]:
    opened = row.opened
    return [
        cell(moment(row.ends_at), note="as we noticed it" if row.estimated else "") if row.ends_at else unknown(),
        cell(reader.node(opened.node_id, opened.dag_id)),
        cell(opened.accelerator_type, note=str(opened.tier)),
        cell(opened.zone),
        cell(duration(row.hours)),
        reader.run(opened.dag_id, opened.run_id),
    ]
