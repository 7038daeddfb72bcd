# SPDX-License-Identifier: Apache-2.0
"""The report of a month as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_tpu.core.ledger.billable import NOT_MEASURED
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.ledger.list_value import not_paid, sums
from airflow_tpu.core.ledger.usage import Total, Usage
from airflow_tpu.core.report.month import Month
from airflow_tpu.core.report.table import chip_hours, usd
from airflow_tpu.core.report.text import ACKNOWLEDGEMENT

SHOWN_RUNS = 50
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#])")


def markdown(usage: Usage, month: Month, chart: str = "") -> str:
    """The report of a month.

    :param usage: its fold.
    :param month: which.
    :param chart: address of the chart, relative to the report.
    """
    lines = [f"# TPU usage {month}", "", f"As of {usage.now:%Y-%m-%d %H:%M} UTC. {_scope(usage)}", "", *_short(usage)]
    if chart:
        lines += ["", f"![Chip-hours per day, stacked by DAG]({chart})"]
    for heading, part in _parts(usage):
        lines += ["", f"## {heading}", "", *part]
    return "\n".join([*lines, "", ACKNOWLEDGEMENT, ""])


def _scope(usage: Usage) -> str:
    return f"{len(usage.rows)} incarnation(s) of a TPU, each counted whole in the month in which it was asked for."


def _short(usage: Usage) -> list[str]:
    taken = sum(row.state == EndReason.PREEMPTED for row in usage.rows)
    lost = chip_hours(usage.lost) + (f", unknown for {usage.lost_unknown} TPU(s)" if usage.lost_unknown else "")
    pairs = (
        ("chip-hours covered by the grant", chip_hours(usage.covered.chip_hours)),
        ("list value not paid", _value(usage.covered)),
        ("chip-hours **not covered**", chip_hours(usage.not_covered.chip_hours)),
        ("chip-hours idle (READY without training)", chip_hours(usage.idle)),
        ("chip-hours lost after the newest safe checkpoint", lost),
        ("preemptions", str(taken)),
        ("still running, or without an end in the ledger", str(len(usage.running))),
    )
    return _table(("", "|"), pairs, raw=True)


def _value(total: Total) -> str:
    more = f", and unknown for {chip_hours(total.unpriced)} chip-hours" if total.unpriced else ""
    return usd(total.known_value) + (more if total.known_value is not None else "")


def _parts(usage: Usage) -> Iterator[tuple[str, list[str]]]:
    yield "By allowance", _totals("Allowance", usage.by_allowance)
    yield "By DAG", _totals("DAG", usage.by_dag)
    yield "By run", _totals("DAG / run", usage.by_run)
    yield "List value not paid", _not_paid(usage)
    yield "Not free", _not_free(usage)


def _totals(name: str, totals: Mapping[str, Total]) -> list[str]:
    largest = sorted(totals.items(), key=lambda item: (-item[1].chip_hours, item[0]))
    rows = [(key, chip_hours(total.chip_hours), _value(total)) for key, total in largest[:SHOWN_RUNS]]
    more = [f"... and {len(largest) - SHOWN_RUNS} smaller ones"] if len(largest) > SHOWN_RUNS else []
    return _table((name, "|Chip-hours", "|List value"), rows, more)


def _not_paid(usage: Usage) -> list[str]:
    rows = []
    for line in not_paid(usage.rows):
        price = line.price
        each = (
            ("unknown", "", "")
            if price is None
            else (f"{price.usd_per_chip_hour.normalize():f}", price.date, price.source)
        )
        rows.append((line.kind, chip_hours(line.chip_hours), usd(line.value), *each))
    return _table(("Type and zone", "|Chip-hours", "|Value", "|USD/chip-hour", "Price of", "Source"), rows)


def _not_free(usage: Usage) -> list[str]:
    rows = [
        (line.what, "" if line.quantity is None else chip_hours(line.quantity), line.unit, usd(line.usd), line.note)
        for line in usage.not_free
    ]
    known, unknown = sums(usage.not_free)
    total = (
        [f"Known: {usd(known)}" + (f", and {unknown} item(s) of unknown price." if unknown else ".")] if rows else []
    )
    more = [*total, f"Not measured here, and not free: {NOT_MEASURED}."]
    return _table(("What", "|Amount", "Unit", "|At list price", "Where the figure comes from"), rows, more)


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], more: Iterable[str] = (), raw: bool = False
) -> list[str]:
    """A table; a heading that begins with a bar is of a column of numbers."""
    cells = [[cell if raw else _plain(cell) for cell in row] for row in rows]
    below = [line for text in more for line in ("", text)]
    if not cells:
        return ["nothing", *below]
    names = [head.removeprefix("|") for head in heads]
    places = ["---:" if head.startswith("|") else "---" for head in heads]
    return [*(f"| {' | '.join(row)} |" for row in (names, places, *cells)), *below]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
