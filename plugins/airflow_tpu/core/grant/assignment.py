# SPDX-License-Identifier: Apache-2.0
"""Which row of the grant each TPU belongs to: the one answer that create, usage page and daily grant check read.

Every TPU belongs to at most one row, and the most specific row comes first: devices of its type, chips of its type,
chips of its generation. Taking the rows in this order is optimal, so a create that some arrangement of all TPUs would
cover is never refused, and no search for a maximum flow is needed:

* the rows of a pool are nested: every TPU that a row of its type takes, the row of its generation could take as well;
* TPUs of one type are equal, so a full row of a type leaves the same remainder whichever of them it took;
* what the rows of a type take, the row of the generation need not, and it takes nothing that they could have taken.

Only where more exists than the rows have room for does the order decide *which* TPU is beyond a row. A TPU beyond a row
still counts against it: which of them Google bills is unknown, so nothing more is permitted there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.allowance import DEVICES, Allowance
from airflow_tpu.core.grant.inventory import InventoryItem
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.core.tpu.spec import Tier

Pool = tuple[str, Tier]
"""Zone and tier; rows and TPUs of different pools have nothing to do with one another."""


class GrantRows(Protocol):
    """A grant, or as much of one as its rows are."""

    @property
    def allowances(self) -> tuple[Allowance, ...]:
        """The rows."""

    @property
    def generations(self) -> Generations:
        """The rule by which the chips of a type are counted."""


@dataclass
class RowUse:
    """What belongs to one row.

    :param row: the row.
    :param covered: living TPUs that it has room for.
    :param beyond: living TPUs that no row has room for and that are billed; this is the last row they fit by kind.
    :param dead: TPUs that ended and hold quota until they are deleted.
    :param in_use: devices or chips of the living, those beyond included.
    :param dead_units: devices or chips of the dead.
    """

    row: Allowance
    covered: list[InventoryItem] = field(default_factory=list)
    beyond: list[InventoryItem] = field(default_factory=list)
    dead: list[InventoryItem] = field(default_factory=list)
    in_use: int = 0
    dead_units: int = 0

    @property
    def holders(self) -> list[InventoryItem]:
        """Every TPU that takes some of the row."""
        return [*self.covered, *self.beyond, *self.dead]

    @property
    def held(self) -> int:
        """Devices or chips that are not free."""
        return self.in_use + self.dead_units

    @property
    def free(self) -> int:
        """Devices or chips that a create may still take."""
        return max(0, self.row.count - self.held)

    @property
    def over(self) -> int:
        """Devices or chips that live beyond the row and are billed."""
        return max(0, self.in_use - self.row.count)

    def has_room(self, chips: int) -> bool:
        """Whether one more TPU of so many chips would be covered."""
        return self.row.units(chips) <= self.free

    def take(self, item: InventoryItem, chips: int) -> None:
        """Book a TPU."""
        units = self.row.units(chips)
        if not item.alive:
            self.dead.append(item)
            self.dead_units += units
            return
        (self.covered if self.has_room(chips) else self.beyond).append(item)
        self.in_use += units


@dataclass(frozen=True)
class Assignment:
    """The rows of a grant with what belongs to each, and what belongs to none.

    :param grant: whose rows they are.
    :param uses: one for each row, in the order of the grant.
    :param places: use of the row that a TPU belongs to; TPUs of no row are missing.
    :param uncovered: living TPUs of a type, tier or zone that no row has.
    :param uncounted: TPUs of a type outside Google's naming rule, living or not: they may use any row of their pool.
    """

    grant: GrantRows
    uses: tuple[RowUse, ...]
    places: Mapping[InventoryItem, RowUse]
    uncovered: tuple[InventoryItem, ...]
    uncounted: tuple[InventoryItem, ...]

    def uncounted_in(self, zone: str, tier: Tier) -> list[InventoryItem]:
        """TPUs in a pool that cannot be counted, so that nothing is known of its rows."""
        return [item for item in self.uncounted if _pool(item.zone, item.tier) == _pool(zone, tier)]

    def candidates(self, accelerator_type: str, zone: str, tier: Tier) -> list[RowUse]:
        """Rows that cover such a TPU if they have room, the most specific first."""
        by_row = {use.row: use for use in self.uses}
        return [by_row[row] for row in rows_for(self.grant, accelerator_type, zone, tier)]

    def has_room_for(self, item: InventoryItem) -> bool:
        """Whether a TPU of this kind would be covered beside all others."""
        parsed = self.grant.generations.parse(self.grant.generations.type_name(item.accelerator_type))
        uses = self.candidates(item.accelerator_type, item.zone, item.tier)
        return parsed is not None and any(use.has_room(parsed.chips) for use in uses)


def rows_for(grant: GrantRows, accelerator_type: str, zone: str, tier: Tier) -> list[Allowance]:
    """Rows about TPUs of this type, zone and tier, however many exist already; the most specific first."""
    name, pool = grant.generations.type_name(accelerator_type), _pool(zone, tier)
    parsed = grant.generations.parse(name)
    if parsed is None:
        return []
    mine = (row for row in grant.allowances if _pool(row.zone, row.tier) == pool)
    return sorted((row for row in mine if row.is_of(name, parsed.generation)), key=_breadth)


def assign(grant: GrantRows, items: Iterable[InventoryItem], paid: Collection[ResourceName | None] = ()) -> Assignment:
    """Give every TPU to a row of the grant.

    :param items: TPUs and reservations, each once.
    :param paid: names of TPUs whose bill was accepted; a row covers the others first.
    """
    uses = {row: RowUse(row) for row in grant.allowances}
    places: dict[InventoryItem, RowUse] = {}
    uncovered, uncounted = [], []
    # The living first, since the dead are not billed; then by name, so that every reader sees the same.
    for item in sorted(items, key=lambda one: (not one.alive, one.name in paid, str(one.name or one.id), one.node)):
        parsed = grant.generations.parse(grant.generations.type_name(item.accelerator_type))
        fitting = [uses[row] for row in rows_for(grant, item.accelerator_type, item.zone, item.tier)]
        if parsed is None:
            uncounted.append(item)
        elif fitting:
            places[item] = _use_for(fitting, parsed.chips)
            places[item].take(item, parsed.chips)
        elif item.alive:
            uncovered.append(item)
    return Assignment(grant, tuple(uses.values()), places, tuple(uncovered), tuple(uncounted))


def _use_for(fitting: Sequence[RowUse], chips: int) -> RowUse:
    return next((use for use in fitting if use.has_room(chips)), fitting[-1])


def _breadth(row: Allowance) -> tuple[bool, bool]:
    return (not row.accelerator_type, row.unit != DEVICES)


def _pool(zone: str, tier: Tier) -> Pool:
    return (zone, tier.pool)
