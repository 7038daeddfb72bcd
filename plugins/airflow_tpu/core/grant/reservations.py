# SPDX-License-Identifier: Apache-2.0
"""Chips that a run has taken from the grant before the Cloud TPU API can show them.

Two runs that ask in the same second see the same inventory, and both find room for the last device. So each run
writes down what it is about to create, in one object per grant that is only ever replaced at the generation it was
read at: the second writer has to read the first one's reservation and ask again. A reservation lives from before the
create call until after the TPU is gone; while both are visible they count once.

Runs that wait for room stand in the same object, in the order in which they came: what comes back is the oldest one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    :param holder: the run as Airflow shows it, for people.
    """

    owner: str
    airflow: str
    run: str
    accelerator_type: str
    tier: Tier
    zone: str
    chips: int
    expires_at: datetime
    holder: str = ""

    @classmethod
    def of(cls, key: RunKey, spec: TPUSpec, chips: int, expires_at: datetime) -> Reservation:
        """The reservation of a run for one TPU."""
        kind, holder = spec.accelerator_type, key.in_airflow
        return cls(key.digest, key.airflow, key.name, kind, spec.tier, spec.zone, chips, expires_at, holder)

    @property
    def item(self) -> InventoryItem:
        """The reservation as the grant counts it: like the TPU that it is for."""
        return InventoryItem(
            None,
            self.accelerator_type,
            self.tier,
            self.zone,
            self.owner,
            reserved_by=self.run,
            airflow=self.airflow,
            holder=self.holder,
        )


@dataclass(frozen=True)
class Reservations:
    """All reservations of a grant, at most one per run.

    :param entries: what is taken.
    :param waiting: what runs will take when there is room, the oldest first.
    """

    entries: tuple[Reservation, ...] = ()
    waiting: tuple[Reservation, ...] = ()

    @property
    def all(self) -> tuple[Reservation, ...]:
        """What is taken, and what is waited for."""
        return (*self.entries, *self.waiting)

    def of(self, owner: str) -> Reservation | None:
        """The reservation of a run."""
        return next((entry for entry in self.entries if entry.owner == owner), None)

    def of_airflow(self, identity: str) -> Reservations:
        """Those of the runs of one Airflow."""
        return self._only(lambda entry: entry.airflow == identity)

    def ahead_of(self, owner: str, airflow: str, now: datetime) -> tuple[InventoryItem, ...]:
        """What older waits of the same Airflow will take: a run that comes later leaves it to them.

        :param owner: digest of a run; nobody is ahead of one that holds a reservation.
        :param airflow: identity of its Airflow: those of another one are no reason to wait.
        :param now: aware instant.
        """
        if self.of(owner) is not None:
            return ()
        place = next((number for number, entry in enumerate(self.waiting) if entry.owner == owner), None)
        ahead = (entry for entry in self.waiting[:place] if entry.airflow == airflow and entry.expires_at > now)
        return tuple(replace(entry.item, waits=True) for entry in ahead)

    def taken(self, wanted: Reservation, now: datetime) -> Reservations:
        """Add one, which replaces the older one of the same run; drop what has expired."""
        others = self._only(lambda entry: entry.owner != wanted.owner and entry.expires_at > now)
        return replace(others, entries=(*others.entries, wanted))

    def queued(self, wanted: Reservation, now: datetime) -> Reservations:
        """Let a run wait for one, in the place that it has or as the last; what it held elsewhere it gives back.

        A run that holds this very room keeps it: its TPU may be alive, and the row overfull because of others.
        """
        held = self.of(wanted.owner)
        if held is not None and _pool(held.item) == _pool(wanted.item):
            return self.taken(wanted, now)
        others = self._only(lambda entry: entry.expires_at > now)
        if any(entry.owner == wanted.owner for entry in others.waiting):
            waiting = tuple(wanted if entry.owner == wanted.owner else entry for entry in others.waiting)
        else:
            waiting = (*others.waiting, wanted)
        return Reservations(tuple(entry for entry in others.entries if entry.owner != wanted.owner), waiting)

    def to_front(self, owner: str) -> Reservations:
        """Let a run that waits be the next."""
        first = tuple(entry for entry in self.waiting if entry.owner == owner)
        return replace(self, waiting=(*first, *(entry for entry in self.waiting if entry.owner != owner)))

    def without(self, gone: Iterable[Reservation]) -> Reservations:
        """Remove these; a reservation that its run has renewed meanwhile is another one, and stays."""
        gone = frozenset(gone)
        return self._only(lambda entry: entry not in gone)

    def added_to(self, inventory: Inventory, now: datetime) -> Inventory:
        """Return the inventory with every reservation that has not expired and whose TPU is not in it yet.

        TPUs of runs that have a reservation get the name of their run from it.
        """
        holders = {entry.owner: entry.holder for entry in self.entries}
        items = tuple(replace(item, holder=holders.get(item.owner or "", "")) for item in inventory.items)
        inventory = replace(inventory, items=items)
        seen = {_pool(item) for item in inventory.items}
        pending = [entry.item for entry in self.entries if entry.expires_at > now and _pool(entry.item) not in seen]
        return inventory.also(pending)

    def _only(self, wanted: Callable[[Reservation], bool]) -> Reservations:
        return Reservations(tuple(filter(wanted, self.entries)), tuple(filter(wanted, self.waiting)))


def _damaged(text: str) -> GrantUnknown:
    return GrantUnknown([Fault(OBJECT, text, "when no run is in progress, delete it")], "the list of reservations")


RESERVATIONS_FORM = json_form.StoredForm("list of reservations", Reservations, damaged=_damaged)
"""The object in the bucket."""

NOTHING = Reservations()


def _pool(item: InventoryItem) -> tuple[str | None, str, str, Tier]:
    return (item.owner, item.accelerator_type, item.zone, item.tier.pool)
