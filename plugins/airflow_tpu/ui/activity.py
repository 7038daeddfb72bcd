# SPDX-License-Identifier: Apache-2.0
"""Chart and tables of the ledger: chip-hours by day and DAG, list value not paid, what is not free, preemptions."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from airflow_tpu.core.ledger.billable import NOT_MEASURED
from airflow_tpu.core.ledger.daily import daily, span, used_days
from airflow_tpu.core.ledger.events import EndReason, Opened
from airflow_tpu.core.ledger.incarnation import Row
from airflow_tpu.core.ledger.list_value import Priced, not_paid
from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.report.table import chip_hours, duration, usd
from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.ui.parts import NUMBER, TEXT, UNKNOWN, WORD, Cell, Reader, cell, moment, table, unknown

SHOWN_DAYS = 60
SHOWN_PREEMPTIONS = 10
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
    ("Lost chip-hours", NUMBER),
    ("Run", TEXT),
)


def chart(usage: Usage | None, reader: Reader) -> dict[str, Any] | None:
    """Chip-hours per UTC day, stacked by DAG; a day without use is a zero, an unreadable ledger is None."""
    if usage is None:
        return None
    found = daily(usage.rows, _days(usage), reader.dag)
    used = [number for number in range(len(found.days)) if found.total(number)]
    rows = [
        [cell(found.days[number]), *(cell(chip_hours(line.values[number])) for line in found.series)]
        for number in reversed(used)
    ]
    columns = [("Day (UTC)", WORD), *((line.name, NUMBER) for line in found.series)]
    series = [{"name": line.name, "values": [round(float(value), 6) for value in line.values]} for line in found.series]
    empty = "no TPU has been READY in this time"
    more = f"the last {SHOWN_DAYS} days; days without use are left out of this table" if rows else ""
    return {"days": list(found.days), "series": series, "table": table(columns, rows, empty, more)}


def _days(usage: Usage) -> tuple[str, ...]:
    """Every day from the first one with use to today, so that a gap is seen as one."""
    today = usage.now.date()
    first = date.fromisoformat(next(iter(used_days(usage.rows)), f"{today}"))
    return span(max(first, today - timedelta(days=SHOWN_DAYS - 1)), today)


def value_table(usage: Usage | None) -> dict[str, Any]:
    """What the covered chip-hours would have cost, each price with its date and source."""
    rows = [_value_row(line) for line in not_paid(usage.rows if usage else ())]
    empty = "no covered TPU has been READY yet" if usage else UNKNOWN
    return table(VALUE_COLUMNS, rows, empty, _total(usage) if rows and usage else "")


def _value_row(line: Priced) -> list[Cell]:
    price, hours = line.price, cell(chip_hours(line.chip_hours))
    if price is None:
        return [cell(line.kind), hours, unknown(), unknown("no price is published"), unknown(), unknown()]
    each = cell(f"{price.usd_per_chip_hour.normalize():f}")
    return [cell(line.kind), hours, each, cell(usd(line.value)), cell(price.date), cell(price.source)]


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


def preemption_table(usage: Usage | None, reader: Reader, airflows: Airflows) -> dict[str, Any]:
    """The newest preemptions, those of the other Airflows of this bucket and prefix included."""
    rows = preempted(usage) if usage else []
    cells = [_preemption(row, reader, airflows) for row in rows[:SHOWN_PREEMPTIONS]]
    more = f"and {len(rows) - SHOWN_PREEMPTIONS} earlier ones" if len(rows) > SHOWN_PREEMPTIONS else ""
    return table(PREEMPTION_COLUMNS, cells, "none so far" if usage else UNKNOWN, more)


def _preemption(row: Row, reader: Reader, airflows: Airflows) -> list[Cell]:
    opened = row.opened
    return [
        cell(moment(row.ends_at), note="as we noticed it" if row.estimated else "") if row.ends_at else unknown(),
        cell(reader.node(opened.node_id, opened.dag_id)),
        cell(opened.accelerator_type, note=str(opened.tier)),
        cell(opened.zone),
        cell(duration(row.hours)),
        unknown() if row.lost_chip_hours is None else cell(chip_hours(row.lost_chip_hours)),
        _run(opened, reader, airflows),
    ]


def _run(opened: Opened, reader: Reader, airflows: Airflows) -> Cell:
    if opened.airflow == airflows.own:
        return reader.run(opened.dag_id, opened.run_id)
    known = airflows.known.get(opened.airflow)
    owner = airflows.named(opened.airflow) if opened.airflow else "an unknown Airflow"
    return reader.run_elsewhere(opened.dag_id, opened.run_id, owner, known.address if known else "")
