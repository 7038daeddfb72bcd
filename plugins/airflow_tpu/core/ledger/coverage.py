# SPDX-License-Identifier: Apache-2.0
"""Which hours of a covered TPU are billed all the same: outside the term, and beyond what the rows hold at once.

A permit cannot know what comes after it: a TPU whose delete fails outlives the grant, and two Airflows with different
grant files create more than either allows. So the hours are judged once more when they are added up, by the grant that
the records of that time name, and by the one rule of which TPU belongs to which row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from itertools import groupby

from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.assignment import RowUse, assign
from airflow_tpu.core.grant.inventory import InventoryItem
from airflow_tpu.core.ledger.events import GrantTerm
from airflow_tpu.core.ledger.incarnation import Billed, Row, hours_between

_END, _REQUEST, _BEGIN = range(3)
"""What happens at one instant, in this order: what ends then makes room for what begins then."""


@dataclass(frozen=True)
class _Rows:
    allowances: tuple[Allowance, ...]
    generations: Generations


@dataclass(frozen=True)
class _Span:
    """A time of one incarnation that is not covered."""

    row: Row
    begin: datetime
    end: datetime
    why: str


Parse = Callable[[str], Allowance | None]
_Kind = tuple[str, str, str]
"""What a row is about, whatever its count: unit, generation and type."""


def judged(rows: Iterable[Row], generations: Generations) -> tuple[Row, ...]:
    """The incarnations with the chip-hours of each that the grant does not cover.

    :param rows: every incarnation of the ledger, in the order they were asked for: one alone does not tell how many
        there were at once.
    :param generations: the rule by which the chips of a type are counted.
    """
    rows = tuple(rows)
    parse = cache(lambda text: Allowance.parse(text, generations))
    pools: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        pools.setdefault((row.opened.project, row.opened.zone, row.opened.tier.pool), []).append(row)
    found: dict[str, list[_Span]] = {}
    for span in (
        *_outside(rows),
        *(span for pool in pools.values() for span in _Pool(pool, generations, parse).spans()),
    ):
        found.setdefault(span.row.opened.node_id, []).append(span)
    return tuple(_with_excess(row, found.get(row.opened.node_id)) for row in rows)


def _with_excess(row: Row, spans: list[_Span] | None) -> Row:
    if spans is None:
        return row
    sums: dict[str, Decimal] = {}
    for span in spans:
        hours = hours_between(span.begin, span.end) * row.opened.chips
        sums[span.why] = sums.get(span.why, Decimal(0)) + hours
    return replace(row, excess=tuple(Billed(why, hours) for why, hours in sums.items()))


def _inside(row: Row, terms: Mapping[object, GrantTerm]) -> tuple[datetime, datetime] | None:
    """The part of its READY time within the term, None if there is none or it has no hours that count."""
    begin, end, term = row.begins_at, row.ends_at, _term(row, terms)
    if begin is None or end is None or not row.covered or not row.chip_hours:
        return None
    if term is not None:
        begin, end = max(begin, term.begins_at), min(end, term.ends_at)
    return (begin, end) if begin < end else None


def _outside(rows: tuple[Row, ...]) -> Iterator[_Span]:
    terms = _newest(rows)
    for row in rows:
        begin, end, term = row.begins_at, row.ends_at, _term(row, terms)
        if begin is None or end is None or term is None or not row.covered or not row.chip_hours:
            continue
        if begin < term.begins_at:
            yield _Span(row, begin, min(end, term.begins_at), f"before the grant began, {_moment(term.begins_at)}")
        if end > term.ends_at:
            yield _Span(row, max(begin, term.ends_at), end, f"after the end of the grant, {_moment(term.ends_at)}")


def _newest(rows: Iterable[Row]) -> dict[object, GrantTerm]:
    """The last record of each term: one that was extended, or corrected, has another end."""
    named = ((row.opened.project, row.opened.term) for row in rows)
    return {(project, term.begins_at): term for project, term in named if term is not None}


def _term(row: Row, terms: Mapping[object, GrantTerm]) -> GrantTerm | None:
    own = row.opened.term
    return None if own is None else terms[row.opened.project, own.begins_at]


class _Pool:
    """The incarnations of one zone and tier, which share rows with no others.

    :param rows: in the order they were asked for.
    :param generations: the rule by which the chips of a type are counted.
    :param parse: reads the text of a row of the grant.
    """

    def __init__(self, rows: list[Row], generations: Generations, parse: Parse) -> None:
        self._rows = rows
        self._generations = generations
        self._parse = parse
        first = rows[0].opened
        self._place = (first.zone, first.tier.pool)
        self._allowances: dict[_Kind, Allowance] = {}
        self._learnt: tuple[str, ...] = ()
        self._fits = cache(self._has_room)

    def spans(self) -> Iterator[_Span]:
        """Times at which an incarnation was one too many."""
        living: dict[str, Row] = {}
        types: Counter[str] = Counter()
        since: datetime | None = None
        fits = True
        for at, moments in groupby(self._moments(), key=lambda moment: moment[0]):
            if since is not None and not fits:
                yield from (_Span(row, since, at, f"more at once than {use.row}") for row, use in self._beyond(living))
            since, ends_only = at, True
            for _, what, _, row in moments:
                self._apply(what, row, living, types)
                ends_only = ends_only and what == _END
            if not (fits and ends_only):  # what fitted fits without those that have ended
                fits = self._fits(tuple(self._allowances.values()), tuple(sorted((+types).items())))

    def _moments(self) -> list[tuple[datetime, int, int, Row]]:
        terms = _newest(self._rows)
        found = []
        for number, row in enumerate(self._rows):
            found.append((row.opened.requested_at.astimezone(UTC), _REQUEST, number, row))
            if inside := _inside(row, terms):
                found += [(inside[0], _BEGIN, number, row), (inside[1], _END, number, row)]
        return sorted(found, key=lambda moment: moment[:3])

    def _apply(self, what: int, row: Row, living: dict[str, Row], types: Counter[str]) -> None:
        opened = row.opened
        if what == _REQUEST:
            self._learn(row)
        elif what == _BEGIN:
            living[opened.node_id] = row
            types[opened.accelerator_type] += 1
        else:
            del living[opened.node_id]
            types[opened.accelerator_type] -= 1

    def _learn(self, row: Row) -> None:
        """Go by the newest record of the grant; one without the grant names at least its own row."""
        term, own = row.opened.term, row.opened.allowance
        texts = term.rows if term is not None else (own,) if own else ()
        if texts == self._learnt:
            return
        self._learnt = texts
        found = [one for text in texts if (one := self._parse(text)) and (one.zone, one.tier) == self._place]
        known = {(one.unit, one.generation, one.accelerator_type): one for one in found}
        self._allowances = known if term is not None else self._allowances | known

    def _has_room(self, allowances: tuple[Allowance, ...], types: tuple[tuple[str, int], ...]) -> bool:
        kinds = [kind for kind, count in types for _ in range(count)]
        items = [self._item(number, kind) for number, kind in enumerate(kinds)]
        return not any(use.beyond for use in assign(_Rows(allowances, self._generations), items).uses)

    def _beyond(self, living: Mapping[str, Row]) -> Iterator[tuple[Row, RowUse]]:
        """Who is one too many: what is only estimated, then what was asked for last."""
        rows = sorted(living.values(), key=lambda row: (row.estimated, row.opened.requested_at, row.opened.node_id))
        items = [self._item(number, row.opened.accelerator_type) for number, row in enumerate(rows)]
        for use in assign(_Rows(tuple(self._allowances.values()), self._generations), items).uses:
            yield from ((rows[int(item.node)], use) for item in use.beyond)

    def _item(self, number: int, accelerator_type: str) -> InventoryItem:
        zone, tier = self._place
        return InventoryItem(None, accelerator_type, tier, zone, None, node=f"{number:08d}")


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
