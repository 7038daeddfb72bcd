# SPDX-License-Identifier: Apache-2.0
"""Hours that a covered TPU is billed all the same: outside the term of the grant, and beyond its rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.ledger.events import Closed, EndReason, GrantTerm, Opened, TimeSource
from airflow_tpu.core.ledger.ledger_filter import LedgerFilter
from airflow_tpu.core.ledger.usage import NOT_COVERED, Usage, fold
from airflow_tpu.core.report.text import text_report
from airflow_tpu.core.tpu.spec import Tier
from tests.airflow_tpu.core.made_ledger import ASKED, ROW, opened

HOUR = timedelta(hours=1)
ENDS = ASKED + 10 * HOUR
DEVICES, CHIPS = "1 spot v5litepod-8 devices in europe-west4-b", "8 spot v5e chips in europe-west4-b"
V5E: dict[str, Any] = {"accelerator_type": "v5litepod-8", "zone": "europe-west4-b", "chips": 8, "tier": Tier.SPOT}


def term(ends: datetime = ENDS, rows: Iterable[str] = (ROW,), begins: datetime = ASKED - 99 * HOUR) -> GrantTerm:
    """A grant that ends ten hours after the first request."""
    return GrantTerm(begins, ends, tuple(rows))


def life(
    name: str, begin: float, end: float, source: TimeSource = TimeSource.API, **more: Any
) -> list[Opened | Closed]:
    """A TPU that is READY from one hour to another, counted from the first request."""
    at, until = ASKED + begin * HOUR, ASKED + end * HOUR
    event = opened(name, **{"requested_at": at, "run": name, **more})
    return [event, Closed(name, at, until, EndReason.FINISHED, source)]


def folded(catalogue: Catalogue, *lives: list[Opened | Closed], wanted: LedgerFilter | None = None) -> Usage:
    """The usage of these TPUs, long after."""
    return fold([event for one in lives for event in one], catalogue, ASKED + 999 * HOUR, wanted=wanted)


def hours(usage: Usage) -> dict[str, tuple[Decimal, list[str]]]:
    """Chip-hours of each TPU that are covered, and why the others are not."""
    return {
        row.opened.node_id: (row.covered_chip_hours, [part.why for part in row.billed if part.chip_hours])
        for row in usage.rows
    }


def test_hours_after_the_end_are_billed(catalogue: Catalogue) -> None:
    """A TPU that outlives the grant is covered to the end of the term, and the rest is not free."""
    usage = folded(catalogue, life("a", 8, 15, term=term()))
    why = "after the end of the grant, 2026-11-27 22:00 UTC"
    assert hours(usage) == {"a": (Decimal(8), [why])}
    assert (usage.covered.chip_hours, usage.not_covered.chip_hours) == (Decimal(8), Decimal(20))
    assert usage.by_allowance[ROW].chip_hours == 8
    assert usage.by_allowance[NOT_COVERED] == usage.not_covered
    assert usage.by_run["tpu_train / manual__1"].chip_hours == 28
    (line,) = [line for line in usage.not_free if line.unit == "chip-hours"]
    assert (line.quantity, line.usd, line.note) == (Decimal(20), Decimal("22.5"), f"outside the grant: {why}")
    text = text_report(usage)
    assert "value  price of" in text
    assert "USD 9.00" in text  # the list value of what was covered, and of nothing else


def test_a_leaked_tpu_is_billed_from_the_end_of_the_term(catalogue: Catalogue) -> None:
    """Without an end in the ledger it counts up to now, and so do the hours that nobody covers."""
    usage = fold([opened(term=term())], catalogue, ASKED + 12 * HOUR)
    assert (usage.covered.chip_hours, usage.not_covered.chip_hours) == (Decimal(40), Decimal(8))
    (line,) = [line for line in usage.not_free if line.unit == "chip-hours"]
    assert line.note.startswith("at most, outside the grant: after the end")


def test_hours_before_the_grant_are_billed(catalogue: Catalogue) -> None:
    """A clock that is wrong covers nothing before the term begins."""
    usage = folded(catalogue, life("a", 0, 3, term=term(begins=ASKED + HOUR)))
    assert hours(usage) == {"a": (Decimal(8), ["before the grant began, 2026-11-27 13:00 UTC"])}


def test_a_term_that_was_extended(catalogue: Catalogue) -> None:
    """The newest record of a term says when it ends; that of another grant does not."""
    longer, other = term(ENDS + 9 * HOUR), term(ENDS + 9 * HOUR, begins=ASKED + 9 * HOUR)
    first = life("a", 8, 15, term=term())
    assert hours(folded(catalogue, first, life("b", 16, 17, term=longer)))["a"] == (Decimal(28), [])
    assert hours(folded(catalogue, first, life("b", 16, 17, term=other)))["a"][0] == Decimal(8)


@pytest.mark.parametrize("named", [None, term(ENDS + 99 * HOUR)])
def test_more_at_once_than_the_row_has(catalogue: Catalogue, named: GrantTerm | None) -> None:
    """Ten devices at once of a row of five: five are covered, and those asked for last are billed."""
    lives = [life(f"n{number}", number / 100, 10, term=named) for number in range(10)]
    usage = folded(catalogue, *lives)
    assert [name for name, (free, _) in hours(usage).items() if free] == ["n0", "n1", "n2", "n3", "n4"]
    assert hours(usage)["n9"] == (Decimal(0), [f"more at once than {ROW}"])
    assert usage.covered.chip_hours + usage.not_covered.chip_hours == sum(row.chip_hours for row in usage.rows)


def test_only_the_time_of_too_many_is_billed(catalogue: Catalogue) -> None:
    """When another one ends there is room again; what begins as another ends is not at the same time."""
    row = "1 on-demand v2-8 devices in us-central1-f"
    one, two, three = life("a", 0, 4, allowance=row), life("b", 3, 6, allowance=row), life("c", 6, 7, allowance=row)
    assert hours(folded(catalogue, one, two, three)) == {
        "a": (Decimal(16), []),
        "b": (Decimal(8), [f"more at once than {row}"]),
        "c": (Decimal(4), []),
    }


def test_an_estimate_makes_way_for_what_is_known(catalogue: Catalogue) -> None:
    """The end of one was noticed late, when the next had its permit: not the next one is billed, and only at most."""
    row = "1 on-demand v2-8 devices in us-central1-f"
    late = life("a", 0, 5, TimeSource.OBSERVED, allowance=row)
    usage = folded(catalogue, late, life("b", 4, 6, allowance=row))
    assert [free for free, _ in hours(usage).values()] == [Decimal(16), Decimal(8)]
    assert [line.note[:8] for line in usage.not_free if line.unit == "chip-hours"] == ["at most,"]


def test_rows_are_those_that_cover_all_together(catalogue: Catalogue) -> None:
    """Which row each TPU belongs to is decided anew for those alive: the second was put into the row of chips first."""
    both = term(rows=(DEVICES, CHIPS))
    first, second = (
        life("a", 0, 2, allowance=DEVICES, term=both, **V5E),
        life("b", 1, 9, allowance=CHIPS, term=both, **V5E),
    )
    third = life("c", 3, 9, allowance=CHIPS, term=both, **V5E)
    assert {why for _, reasons in hours(folded(catalogue, first, second, third)).values() for why in reasons} == set()
    fourth = life("d", 4, 5, allowance=CHIPS, term=both, **V5E)
    assert hours(folded(catalogue, first, second, third, fourth))["d"] == (Decimal(0), [f"more at once than {CHIPS}"])


def test_a_row_goes_by_the_newest_record(catalogue: Catalogue) -> None:
    """A grant file with another count holds from the request that knew it."""
    more = ROW.replace("5", "6")
    lives = [life(f"n{number}", 0, 4) for number in range(5)]
    assert hours(folded(catalogue, *lives, life("z", 1, 4, allowance=more)))["z"] == (Decimal(12), [])


def test_paid_zones_and_tiers_are_apart(catalogue: Catalogue) -> None:
    """A TPU that is paid for, in another zone, of another tier or of another project takes no room of a row."""
    row = "1 on-demand v2-8 devices in us-central1-f"
    other: dict[str, Any] = {"zone": "us-central1-b", "allowance": row.replace("-f", "-b")}
    usage = folded(
        catalogue,
        life("a", 0, 4, allowance=row),
        life("b", 0, 4, allowance=None, paid_reason="due"),
        life("c", 0, 4, **other),
        life("d", 0, 4, tier=Tier.SPOT, allowance=row.replace("on-demand", "spot")),
        life("e", 0, 4, project="another", allowance=row),
    )
    assert {name: free for name, (free, _) in hours(usage).items()} == {**dict.fromkeys("acde", Decimal(16)), "b": 0}


@pytest.mark.parametrize("allowance", ["100 spot ...", "5 on-demand v99-8 devices in us-central1-f"])
def test_a_row_that_cannot_be_read_is_believed(catalogue: Catalogue, allowance: str) -> None:
    """Where the count of a row is not known, the permit of that time stands."""
    usage = folded(catalogue, *(life(f"n{number}", 0, 1, allowance=allowance) for number in range(9)))
    assert usage.not_covered.chip_hours == 0


def test_a_part_is_judged_by_the_whole(catalogue: Catalogue) -> None:
    """The report of the sixth run says that it was one too many, although the other five are not in it."""
    lives = [life(f"n{number}", number / 100, 10) for number in range(6)]
    usage = folded(catalogue, *lives, wanted=LedgerFilter(run="n5"))
    assert [row.opened.node_id for row in usage.rows] == ["n5"]
    assert usage.covered.chip_hours == 0


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=12)


@given(SPANS, st.integers(1, 4))
def test_no_more_is_covered_than_the_rows_allow(catalogue: Catalogue, spans: list[tuple[int, int]], count: int) -> None:
    """At every instant before the end of the term as many are covered as live, at most as many as the row has."""
    row = f"{count} on-demand v2-8 devices in us-central1-f"
    lives = [
        life(f"n{number}", begin, begin + long, allowance=row, term=term(rows=[row]))
        for number, (begin, long) in enumerate(spans)
    ]
    moments = sorted({0, 10, *(at for begin, long in spans for at in (begin, begin + long))})
    alive = [sum(begin <= at < begin + long for begin, long in spans) for at in moments]
    free = sum(
        min(number, count) * 4 * (following - at)
        for number, (at, following) in zip(alive, pairwise(moments), strict=False)
        if at < 10
    )
    usage = folded(catalogue, *lives)
    assert usage.covered.chip_hours == free
    assert usage.covered.chip_hours + usage.not_covered.chip_hours == sum(4 * long for _, long in spans)
