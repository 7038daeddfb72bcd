# SPDX-License-Identifier: Apache-2.0
"""Reading one table of the catalogue, which may be a user's own: every wrong cell at once, with its row and column."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from airflow_tpu.core.tpu.spec import ZONE
from airflow_tpu.errors import Fault

Row = dict[str, str]
Check = Callable[[str, Row], str]
"""What is wrong with a cell, given its row; empty if nothing is."""

_PYTHON = re.compile(r"3\.[0-9]{1,2}")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class Table:
    """What a table must look like.

    :param columns: the columns that must be there, each with the check of its cells.
    :param optional: columns that a table of one's own may lack, each with the check of its cells.
    :param key: the columns that name a row; no two rows have the same.
    """

    columns: dict[str, Check]
    key: tuple[str, ...]
    optional: dict[str, Check] = field(default_factory=dict)

    def read(self, path: Path) -> tuple[list[Row], list[Fault]]:
        """Read a CSV file with a header; columns that are not expected are left alone.

        :param path: the file, UTF-8 with or without a byte-order mark.
        :return: its rows, and what is wrong with them.
        :raises FileNotFoundError: there is no such file.
        """
        try:
            header, numbered = _rows(path)
        except (UnicodeDecodeError, csv.Error) as error:
            return [], [Fault(str(path), path.name, f"is not a CSV file in UTF-8: {error}")]
        missing = [name for name in self.columns if name not in header]
        if missing:
            return [], [Fault(f"{path}, row 1, column {name}", None, "is missing") for name in missing]
        if not numbered:
            return [], [Fault(str(path), path.name, "has no rows")]
        faults = [*self._wrong(path, numbered), *self._repeated(path, numbered)]
        return [row for _, row in numbered], faults

    def _wrong(self, path: Path, numbered: list[tuple[int, Row]]) -> Iterator[Fault]:
        for number, row in numbered:
            place = f"{path}, row {number}"
            if any(not isinstance(value, str) for value in row.values()):
                yield Fault(place, len(row), "has not as many cells as the header")
                continue
            for name, check in (*self.columns.items(), *(one for one in self.optional.items() if one[0] in row)):
                if problem := check(row[name], row):
                    yield Fault(f"{place}, column {name}", row[name], problem)

    def _repeated(self, path: Path, numbered: list[tuple[int, Row]]) -> Iterator[Fault]:
        seen: dict[tuple[str, ...], int] = {}
        for number, row in numbered:
            first = seen.setdefault(tuple(row[name] for name in self.key), number)
            if first != number:
                place, value = f"{path}, row {number}, column {self.key[-1]}", row[self.key[-1]]
                yield Fault(place, value, f"repeats row {first}")


def text(value: str, _row: Row) -> str:
    """A cell with something in it."""
    return "" if value.strip() else "is empty"


def python(value: str, _row: Row) -> str:
    """A version of Python 3, or nothing where it is not known."""
    return "" if not value or _PYTHON.fullmatch(value) else "is no version of Python, such as 3.10"


def anything(_value: str, _row: Row) -> str:
    """A cell that may be empty."""
    return ""


def count(value: str, _row: Row) -> str:
    """A whole number from 1."""
    return "" if _COUNT.fullmatch(value) else "is not a whole number from 1"


def zone(value: str, _row: Row) -> str:
    """The name of a zone."""
    return "" if ZONE.fullmatch(value) else "is not a zone such as us-central1-f"


def price(value: str, _row: Row) -> str:
    """US dollars, or empty where no price is published: unknown is not 0."""
    try:
        usd = Decimal(value or "1")
    except InvalidOperation:
        usd = Decimal(0)
    if usd.is_finite() and usd > 0:
        return ""
    return "is not a price in US dollars such as 1.125; leave it empty if it is unknown"


def rate(value: str, row: Row) -> str:
    """US dollars that must be there: a pair without a rate has no row."""
    return price(value, row) if value else "is empty"


def day(value: str, _row: Row) -> str:
    """An ISO date."""
    try:
        date.fromisoformat(value)
    except ValueError:
        return "is not a date such as 2026-11-27"
    return ""


def _rows(path: Path) -> tuple[list[str], list[tuple[int, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        numbered = [(reader.line_num, row) for row in reader]
        return list(reader.fieldnames or ()), numbered
