# SPDX-License-Identifier: Apache-2.0
"""Each TPU belongs to one row at most, and no create is refused that some arrangement of all TPUs would cover."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.grant.assignment import Assignment, assign, rows_for
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import InventoryItem
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import Tier
from tests.airflow_tpu.shipped import GENERATIONS

ZONE = "europe-west4-b"
CHIPS = {"v5litepod-1": 1, "v5litepod-4": 4, "v5litepod-8": 8}
SMALL, LARGE = "v5litepod-1", "v5litepod-4"


def row(count: int, unit: str = "chips", accelerator_type: str = "") -> Allowance:
    """A row of spot v5e."""
    return Allowance(count, unit, Tier.SPOT, ZONE, "v5e", accelerator_type)


def tpu(name: str, kind: str, alive: bool = True, tier: Tier = Tier.SPOT, zone: str = ZONE) -> InventoryItem:
    """A TPU of the project."""
    return InventoryItem(node_name("p", zone, name), kind, tier, zone, None, alive)


def of(rows: Sequence[Allowance]) -> Grant:
    """A grant of these rows."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    return Grant("my-project", "123456789012", start, 30, "UTC", tuple(rows), "my-bucket", generations=GENERATIONS)


def permits(found: Assignment, kind: str) -> bool:
    """Whether one more TPU would be covered."""
    return any(use.has_room(CHIPS[kind]) for use in found.candidates(kind, ZONE, Tier.SPOT))


def load(rows: list[Allowance], kinds: list[str]) -> Assignment:
    """The assignment of living TPUs of these types."""
    return assign(of(rows), [tpu(f"n{number}", kind) for number, kind in enumerate(kinds)])


@pytest.mark.parametrize(
    ("kind", "zone", "tier", "rows"),
    [
        ("v4-8", "us-central2-b", Tier.ON_DEMAND, ["32 on-demand v4 chips in us-central2-b"]),
        ("v4-64", "us-central2-b", Tier.PREEMPTIBLE, ["32 spot v4 chips in us-central2-b"]),
        ("v5litepod-8", "us-central1-a", Tier.SPOT, ["64 spot v5e chips in us-central1-a"]),
        ("v5litepod-8", "us-central1-a", Tier.ON_DEMAND, []),
        ("v5litepod-8", "us-west4-a", Tier.SPOT, []),
        ("v2-8", "us-central1-f", Tier.SPOT, []),
    ],
)
def test_a_row_is_for_any_slice_of_its_generation_in_its_zone_and_tier(
    grant_mapping: dict[str, Any], kind: str, zone: str, tier: Tier, rows: list[str]
) -> None:
    """Type, zone and tier must all be the row's."""
    assert [str(one) for one in rows_for(Grant.parse(grant_mapping, GENERATIONS), kind, zone, tier)] == rows


def test_the_most_specific_row_is_first() -> None:
    """Devices of the type, then chips of the type, then chips of the generation, however the grant orders them."""
    rows = [row(64), row(16, "chips", LARGE), row(1, "devices", LARGE), row(1, "devices", SMALL)]
    assert rows_for(of(rows), LARGE, ZONE, Tier.PREEMPTIBLE) == [rows[2], rows[1], rows[0]]
    found = load(rows, [LARGE] * 6)
    assert [len(use.covered) for use in found.uses] == [1, 4, 1, 0]


def test_what_no_row_is_about_belongs_to_none() -> None:
    """Another zone, another tier and a type that cannot be counted are in no row; the last is named for its pool."""
    far, dear, odd = tpu("far", SMALL, zone="us-west1-c"), tpu("dear", SMALL, tier=Tier.ON_DEMAND), tpu("odd", "v9-8")
    found = assign(of([row(64)]), [far, dear, odd])
    assert set(found.uncovered) == {far, dear}
    assert found.uncounted_in(ZONE, Tier.PREEMPTIBLE) == [odd]
    assert found.uncounted_in(ZONE, Tier.ON_DEMAND) == []
    assert found.uses[0].holders == []


def test_the_living_are_covered_before_the_dead_and_before_the_paid() -> None:
    """A dead TPU takes only what is free, and of the living the one whose bill was accepted is beyond the row."""
    paid, gone, rest = tpu("a", LARGE), tpu("b", LARGE, alive=False), tpu("c", LARGE)
    (use,) = assign(of([row(4)]), [gone, paid, rest], {paid.name}).uses
    assert (use.covered, use.beyond, use.dead) == ([rest], [paid], [gone])
    assert (use.in_use, use.dead_units, use.free, use.over) == (8, 4, 0, 4)


def test_a_tpu_beyond_a_row_keeps_smaller_ones_out() -> None:
    """A slice too large for the row still counts against it, so that the row is never thought free beside it."""
    found = load([row(4)], ["v5litepod-8"])
    assert not permits(found, SMALL)


def splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to put equal TPUs into rows."""
    for split in itertools.product(range(total + 1), repeat=parts):
        if sum(split) == total:
            yield split


def excess(rows: list[Allowance], kinds: Counter[str]) -> int:
    """Chips beyond the rows under the best of all arrangements, by trying every one.

    What is left of a row of a type is worth whole TPUs only.
    """
    fitting = {kind: [one for one in rows if one.accelerator_type in ("", kind)] for kind in kinds}
    rooms = {one: _room(one) for one in rows}
    best = sum(CHIPS[kind] * count for kind, count in kinds.items())
    ways = [
        [(kind, way) for way in splits(count, len(fitting[kind]))] for kind, count in kinds.items() if fitting[kind]
    ]
    for arrangement in itertools.product(*ways):
        loads: Counter[Allowance] = Counter()
        for kind, way in arrangement:
            for one, count in zip(fitting[kind], way, strict=True):
                loads[one] += CHIPS[kind] * count
        best = min(best, sum(max(0, loads[one] - rooms[one]) for one in rows))
    return best


def _room(one: Allowance) -> int:
    size = CHIPS[one.accelerator_type or SMALL]
    return one.count * size if one.unit == "devices" else one.count // size * size


def grants() -> Iterator[list[Allowance]]:
    """Every small grant of the four kinds of rows that one pool can have; a count of 0 is no row."""
    for small, large, chips, rest in itertools.product((0, 1, 2), (0, 1), (0, 4, 6), (0, 3, 4, 9)):
        rows = [
            row(rest),
            row(chips, "chips", LARGE),
            row(small, "devices", SMALL),
            row(large, "devices", LARGE),
        ]
        yield [one for one in rows if one.count]


def test_a_create_is_covered_exactly_if_the_best_arrangement_covers_it() -> None:
    """Over every small grant and project: one more TPU is permitted if and only if no chip more is beyond the rows."""
    wrong = []
    for rows, (small, large) in itertools.product(grants(), itertools.product(range(5), range(4))):
        kinds = [SMALL] * small + [LARGE] * large
        before, found = excess(rows, Counter(kinds)), load(rows, kinds)
        for wanted in (SMALL, LARGE):
            fits = bool(rows_for(of(rows), wanted, ZONE, Tier.SPOT))
            best = fits and excess(rows, Counter([*kinds, wanted])) == before
            if permits(found, wanted) != best:
                wrong.append((list(map(str, rows)), kinds, wanted, best))
    assert wrong == []


rows_of_a_pool = st.lists(
    st.sampled_from([("chips", ""), *((unit, kind) for unit in ("devices", "chips") for kind in CHIPS)]).flatmap(
        lambda kind: st.builds(row, st.integers(1, 20), st.just(kind[0]), st.just(kind[1]))
    ),
    max_size=5,
    unique_by=lambda one: (one.unit, one.accelerator_type),
)
some_tpus = st.lists(st.tuples(st.sampled_from([*CHIPS, "v9-8"]), st.booleans()), max_size=12)


@given(rows_of_a_pool, some_tpus, st.randoms(use_true_random=False))
def test_no_row_holds_more_than_its_room_and_no_tpu_is_in_two(
    rows: list[Allowance], kinds: list[tuple[str, bool]], order: Any
) -> None:
    """For any rows and TPUs each TPU is in one place, and what is covered fits; the order of the list is no matter."""
    items = [tpu(f"n{number:02}", kind, alive) for number, (kind, alive) in enumerate(kinds)]
    found = assign(of(rows), items)
    for use in found.uses:
        assert sum(use.row.units(CHIPS[item.accelerator_type]) for item in use.covered) <= use.row.count
        assert (use.over > 0) == bool(use.beyond)
    placed = [item for use in found.uses for item in use.holders]
    nowhere = [item for item in items if not item.alive and item not in placed and item not in found.uncounted]
    assert sorted([*placed, *found.uncovered, *found.uncounted, *nowhere], key=str) == sorted(items, key=str)
    shuffled = order.sample(items, len(items))
    assert assign(of(rows), shuffled) == found


@given(rows_of_a_pool, some_tpus, st.permutations([f"n{number:02}" for number in range(12)]))
def test_which_tpu_is_which_decides_nothing(
    rows: list[Allowance], kinds: list[tuple[str, bool]], names: list[str]
) -> None:
    """Under other names, so in another order, the rows are as full, and the same creates are permitted."""
    first, second = (
        assign(of(rows), [tpu(name, kind, alive) for name, (kind, alive) in zip(order, kinds, strict=False)])
        for order in (sorted(names), names)
    )
    for one, other in zip(first.uses, second.uses, strict=True):
        assert (one.in_use, one.dead_units) == (other.in_use, other.dead_units)
    assert [permits(first, kind) for kind in CHIPS] == [permits(second, kind) for kind in CHIPS]
