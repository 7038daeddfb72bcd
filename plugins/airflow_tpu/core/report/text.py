# SPDX-License-Identifier: Apache-2.0
"""The usage as a person reads it in a task log, and as a program reads it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from airflow_tpu.core.grant.grant import WARN_DAYS, Grant
from airflow_tpu.core.ledger.billable import NOT_MEASURED, NotFree
from airflow_tpu.core.ledger.incarnation import Row
from airflow_tpu.core.ledger.list_value import Priced, not_paid, sums
from airflow_tpu.core.ledger.usage import Total, Usage
from airflow_tpu.core.report.table import chip_hours, duration, fitted, table, usd

WIDTH = 100
SHOWN_ROWS = 40
# What the letter of the grant asks for in every publication.
ACKNOWLEDGEMENT = "Research supported with Cloud TPUs from Google's TPU Research Cloud (TRC)."


def text_report(usage: Usage, grant: Grant | None = None) -> str:
    """The whole report, at most 100 columns wide.

    :param usage: the fold of a ledger.
    :param grant: adds the days that are left.
    """
    parts = [_head(usage, grant), _incarnations(usage), _covered(usage), _list_value(usage), _not_free(usage)]
    lines = [line for part in parts if part for line in ("", *part)]
    return "\n".join([*lines[1:], "", ACKNOWLEDGEMENT])


def _head(usage: Usage, grant: Grant | None) -> list[str]:
    lines = [f"TPU USAGE   {usage.now:%Y-%m-%d %H:%M} UTC   {len(usage.rows)} incarnation(s) of a TPU"]
    if grant is not None:
        left = grant.days_left(usage.now)
        warning = "   ENDS SOON: ask for an extension" if 0 < left <= WARN_DAYS else ""
        term = f"{left:.1f} days left, until {grant.ends_at:%Y-%m-%d %H:%M} UTC" if left else "the grant HAS ENDED"
        lines.append(f"grant of {grant.project_id}: {term}{warning}")
    return [*lines, "=" * WIDTH]


def _incarnations(usage: Usage) -> list[str]:
    if not usage.rows:
        return ["no TPU was asked for"]
    shown = usage.rows[-SHOWN_ROWS:]
    header = ("incarnation", "type", "end", "READY for", "chip-hours", "idle", "lost")
    lines = fitted([header, *map(_cells, shown)], right=(3, 4, 5, 6), width=WIDTH)
    if len(usage.rows) > len(shown):
        lines.append(f"... and {len(usage.rows) - len(shown)} earlier ones")
    if any(row.estimated for row in shown):
        lines.append("~ at most: the API does not tell when it became READY or ended, or it is still running")
    return [*lines, *_apart(usage)]


def _apart(usage: Usage) -> list[str]:
    """Chip-hours that trained nothing, or whose training was lost."""
    lines = [f"idle: {chip_hours(usage.idle)} chip-hours READY without training"] if usage.idle else []
    if usage.lost:
        lines.append(f"lost: {chip_hours(usage.lost)} chip-hours trained after the newest checkpoint that was safe")
    if usage.lost_unknown:
        lines.append(f"?: how much was lost with {usage.lost_unknown} incarnation(s) is unknown")
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    mark = "~" if row.estimated else ""
    idle = "" if row.idle_chip_hours is None else chip_hours(row.idle_chip_hours)
    lost = "?" if row.lost_chip_hours is None else chip_hours(row.lost_chip_hours) if row.lost_chip_hours else ""
    ready = mark + duration(row.hours)
    opened = row.opened
    hours = chip_hours(row.chip_hours)
    return (opened.node_id, f"{opened.accelerator_type} {opened.tier}", row.state, ready, hours, idle, lost)


def _covered(usage: Usage) -> list[str]:
    rows = [row for row in usage.rows if row.covered]
    totals = {name: usage.by_allowance[name] for name in dict.fromkeys(str(row.opened.allowance) for row in rows)}
    return ["COVERED BY THE GRANT", *_totals(totals, usage.covered, "nothing")]


def _totals(totals: Mapping[str, Total], whole: Total, empty: str) -> list[str]:
    if not totals:
        return [f"  {empty}"]
    cells = [(name, chip_hours(total.chip_hours), "chip-hours") for name, total in totals.items()]
    return table([*cells, ("total", chip_hours(whole.chip_hours), "chip-hours")], right=(1,), limit=70)


def _list_value(usage: Usage) -> list[str]:
    lines = ["LIST VALUE NOT PAID (of the TPUs that the grant covers)"]
    groups = not_paid(usage.rows)
    if not groups:
        return [*lines, "  none"]
    header = ("type and zone", "chip-hours", "USD/chip-hour", "value", "price of")
    total = ("total", chip_hours(usage.covered.chip_hours), "", usd(usage.covered.known_value), "")
    cells = [header, *map(_price_cells, groups), total]
    unpriced = usage.covered.unpriced
    more = [f"  {chip_hours(unpriced)} chip-hours of these have no published list price"] if unpriced else []
    sources = dict.fromkeys(f"  prices: {price.source}" for price in (line.price for line in groups) if price)
    return [*lines, *table(cells, right=(1, 2, 3)), *more, *sources]


def _price_cells(line: Priced) -> tuple[str, ...]:
    price = line.price
    each = "unknown" if price is None else f"{price.usd_per_chip_hour.normalize():f}"
    return (line.kind, chip_hours(line.chip_hours), each, usd(line.value), price.date if price else "")


def _not_free(usage: Usage) -> list[str]:
    lines = ["NOT FREE"]
    if usage.not_free:
        cells = table([_billed(line) for line in usage.not_free], right=(1, 3), limit=50)
        for cell, line in zip(cells, usage.not_free, strict=True):
            lines += [cell, *_wrapped(line.note, "      ")]
        known, unknown = sums(usage.not_free)
        lines.append(f"  known: {usd(known)}" + (f", and {unknown} item(s) of unknown price" if unknown else ""))
    return [*lines, *_wrapped(f"not measured here: {NOT_MEASURED}", "  ")]


def _billed(line: NotFree) -> tuple[str, ...]:
    amount = "" if line.quantity is None else chip_hours(line.quantity)
    return (line.what, amount, line.unit, usd(line.usd))


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
