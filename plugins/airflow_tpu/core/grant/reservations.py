"""Chips that a run has taken from the grant before the Cloud TPU API can show them.

Two runs that ask in the same second see the same inventory, and both find room for the last device. So each run
writes down what it is about to create, in one object per grant that is only ever replaced at the generation it was
read at: the second writer has to read the first one's reservation and ask again. A reservation lives from before the
create call until after the TPU is gone; while both are visible they count once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_tpu.core import json_form
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import Fault, GrantUnknown

OBJECT = "reservations.json"


@dataclass(frozen=True)
class Reservation:
    """What one run has taken.

    :param owner: digest of the run.
    :param airflow: identity of its Airflow, whose reaper alone gives back what the run has left.
    :param run: name of the run, for people.
    :param chips: chips it takes.
    :param expires_at: aware instant from which it no longer counts, the end of the run's lease.
    """

    owner: str
    airflow: str
    run: str
    accelerator_type: str
    tier: Tier
    zone: str
    chips: int
    expires_at: datetime

    @classmethod
    def of(cls, key: RunKey, spec: TPUSpec, chips: int, expires_at: datetime) -> Reservation:
        """The reservation of a run for one TPU."""
        return cls(key.digest, key.airflow, key.name, spec.accelerator_type, spec.tier, spec.zone, chips, expires_at)

    @property
    def item(self) -> InventoryItem:
        """The reservation as the grant counts it: like the TPU that it is for."""
        place = (self.accelerator_type, self.tier, self.zone)
        return InventoryItem(None, *place, self.owner, reserved_by=self.run, airflow=self.airflow)


@dataclass(frozen=True)
class Reservations:
    """All reservations of a grant, at most one per run."""

    entries: tuple[Reservation, ...] = ()

    def of(self, owner: str) -> Reservation | None:
        """The reservation of a run."""
        return next((entry for entry in self.entries if entry.owner == owner), None)

    def of_airflow(self, identity: str) -> Reservations:
        """Those of the runs of one Airflow."""
        return Reservations(tuple(entry for entry in self.entries if entry.airflow == identity))

    def taken(self, wanted: Reservation, now: datetime) -> Reservations:
        """Add one, which replaces the older one of the same run; drop what has expired."""
        others = [entry for entry in self.entries if entry.owner != wanted.owner and entry.expires_at > now]
        return Reservations((*others, wanted))

    def without(self, gone: Iterable[Reservation]) -> Reservations:
        """Remove these; a reservation that its run has renewed meanwhile is another one, and stays."""
        gone = frozenset(gone)
        return Reservations(tuple(entry for entry in self.entries if entry not in gone))

    def added_to(self, inventory: Inventory, now: datetime) -> Inventory:
        """Return the inventory with every reservation that has not expired and whose TPU is not in it yet."""
        seen = {_pool(item) for item in inventory.items}
        waiting = [entry.item for entry in self.entries if entry.expires_at > now and _pool(entry.item) not in seen]
        return replace(inventory, items=(*inventory.items, *waiting))


def _damaged(text: str) -> GrantUnknown:
    return GrantUnknown([Fault(OBJECT, text, "when no run is in progress, delete it")], "the list of reservations")


RESERVATIONS_FORM = json_form.StoredForm("list of reservations", Reservations, damaged=_damaged)
"""The object in the bucket."""

NOTHING = Reservations()


def _pool(item: InventoryItem) -> tuple[str | None, str, str, Tier]:
    return (item.owner, item.accelerator_type, item.zone, item.tier.pool)
