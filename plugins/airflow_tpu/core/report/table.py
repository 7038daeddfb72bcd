# SPDX-License-Identifier: Apache-2.0
"""Aligned columns for a task log."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

ELLIPSIS = "..."


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "  ", limit: int = 46) -> list[str]:
    """Lines with aligned columns.

    :param rows: cells; every row has as many.
    :param right: numbers of the columns that are aligned to the right.
    :param indent: put before each line.
    :param limit: longest cell but those of the last column; a longer one loses its middle.
    """
    cut = [[*(shorten(cell, limit) for cell in row[:-1]), row[-1]] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    return [indent + _line(row, widths, right) for row in cut]


def fitted(rows: Sequence[Sequence[str]], right: Sequence[int], width: int) -> list[str]:
    """A table whose long cells are cut as far as the width demands, and no further."""
    for limit in range(width, 20, -2):
        lines = table(rows, right, indent="", limit=limit)
        if max(map(len, lines)) <= width:
            break
    return lines


def shorten(text: str, limit: int) -> str:
    """The text without its middle; the end of a name holds what makes it unique."""
    if len(text) <= limit:
        return text
    tail = (limit - len(ELLIPSIS)) // 2
    return text[: limit - len(ELLIPSIS) - tail] + ELLIPSIS + text[-tail:]


def chip_hours(value: Decimal) -> str:
    """Chip-hours with as many decimals as they need to be seen."""
    if not value:
        return "0"
    return "< 0.0001" if value < Decimal("0.0001") else f"{value:,.4f}" if value < 10 else f"{value:,.2f}"


def usd(value: Decimal | None) -> str:
    """US dollars. An unknown value is never a zero, and a tiny one is never rounded to nothing."""
    if value is None:
        return "unknown"
    if not value:
        return "none"
    if value < Decimal("0.0001"):
        return "< USD 0.0001"
    return f"USD {value:,.4f}" if value < 1 else f"USD {value:,.2f}"


def duration(hours: Decimal) -> str:
    """Hours as ``h:mm:ss``."""
    seconds = int(hours * 3600)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if number in right else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()
