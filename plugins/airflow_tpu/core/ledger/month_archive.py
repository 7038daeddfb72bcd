# SPDX-License-Identifier: Apache-2.0
"""The incarnations of a month that have ended, in one object: read at once instead of two objects each.

It is a copy, and each event in it carries the generation of the object that it was read from. A listing of the ledger
tells of every event whether the copy still holds: one that was written, replaced or removed since has another
generation, or none. So a late or amended event is seen, and a copy that is lost or damaged costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC

from airflow_tpu.core import json_form
from airflow_tpu.core.ledger.events import CLOSED_FORM, OPENED_FORM, Closed, Opened

ROOT = "ledger/months"

Event = Opened | Closed
Known = Mapping[str, tuple[int, Event]]
"""Generation and event by the path of its object below the grant's prefix."""


@dataclass(frozen=True)
class MonthArchive:
    """Ended incarnations that were asked for in one UTC month.

    :param opened: how they were asked for, by their ids.
    :param closed: how they ended, in the same order.
    :param generations: of the two objects of each, the opened one first, in the same order.
    """

    opened: tuple[Opened, ...]
    closed: tuple[Closed, ...]
    generations: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, ended: Iterable[tuple[Opened, Closed, tuple[int, int]]]) -> MonthArchive:
        """Put incarnations into one archive."""
        rows = sorted(ended, key=lambda row: row[0].node_id)
        return cls(tuple(row[0] for row in rows), tuple(row[1] for row in rows), tuple(row[2] for row in rows))

    def events(self) -> dict[str, tuple[int, Event]]:
        """Its events, as :data:`Known`."""
        found: dict[str, tuple[int, Event]] = {}
        for opened, closed, (first, last) in zip(self.opened, self.closed, self.generations, strict=True):
            found[opened.path], found[closed.path] = (first, opened), (last, closed)
        return found


ARCHIVE_FORM = json_form.StoredForm(
    "month of the ledger",
    MonthArchive,
    # It holds events: with a new form of one of them it is another one.
    version=OPENED_FORM.version + CLOSED_FORM.version - 1,
)


def archive_path(month: str) -> str:
    """Path of a month, ``2026-11``, below the grant's prefix; each form has its own, so releases do not take turns."""
    return f"{ROOT}/{month}.v{ARCHIVE_FORM.version}.json.gz"


def by_month(known: Known) -> dict[str, MonthArchive]:
    """The archives, by the path of each, that the ended incarnations among these events make."""
    months: dict[str, list[tuple[Opened, Closed, tuple[int, int]]]] = {}
    for generation, event in known.values():
        if isinstance(event, Opened):
            end, closed = known.get(event.closed_path, (0, None))
            if isinstance(closed, Closed):
                month = f"{event.requested_at.astimezone(UTC):%Y-%m}"
                months.setdefault(month, []).append((event, closed, (generation, end)))
    return {archive_path(month): MonthArchive.of(rows) for month, rows in months.items()}
