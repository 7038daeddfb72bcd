# SPDX-License-Identifier: Apache-2.0
"""Keep the object in which runs write down what they take from the grant."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_tpu.core.grant.reservations import NOTHING, OBJECT, RESERVATIONS_FORM, Reservation, Reservations
from airflow_tpu.errors import GrantUnknown, RowInUse, UnknownVersion
from airflow_tpu.stores.store import Store

if TYPE_CHECKING:
    from airflow_tpu.core.grant.authorize import Permit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReservationStore(Store):
    """``reservations.json`` in the shared folder of a bucket, replaced only at the generation it was read at.

    :param tries: how often a change is tried. Cloud Storage takes about one write a second to one object, so fifty
        runs that start together need a minute.
    """

    tries: int = field(default=150, kw_only=True)
    pause: float = field(default=0.25, kw_only=True)

    @property
    def uri(self) -> str:
        """Where the object is."""
        return f"{self.root}/{OBJECT}"

    def read(self) -> Reservations:
        """What is reserved now.

        :raises GrantUnknown: the object is damaged.
        :raises UnknownVersion: another release has written it.
        """
        return self.load(self.uri, RESERVATIONS_FORM) or NOTHING

    def take(self, wanted: Reservation, decide: Callable[[Reservations], Permit]) -> Permit:
        """Reserve, if the grant has room beside what others have reserved.

        :param wanted: what to reserve; a reservation that the run holds already is kept or replaced.
        :param decide: gives the permit or raises; called again each time another writer was faster.
        :return: the permit; from here on everybody else counts this reservation.
        :raises RowInUse: from ``decide``; then the run waits for it, behind those that did before.
        :raises GrantError: from ``decide``; then nothing was reserved.
        :raises TransientError: others were faster each time.
        :raises UnknownVersion: another release has written the object; then nothing was reserved.
        """
        permits: list[Permit] = []

        def taken(current: Reservations | None) -> Reservations:
            now = current or NOTHING
            permits.append(decide(now))
            held = now.of(wanted.owner) == wanted
            return now if held else now.taken(wanted, self.clock.now())

        try:
            self.change(self.uri, RESERVATIONS_FORM, taken)
        except RowInUse:
            self.change(
                self.uri, RESERVATIONS_FORM, lambda current: (current or NOTHING).queued(wanted, self.clock.now())
            )
            raise
        return permits[-1]

    def to_front(self, owner: str) -> None:
        """Let a run that waits be the next: those before it do not take the room that they wait for."""
        self.change(self.uri, RESERVATIONS_FORM, lambda now: None if now is None else now.to_front(owner))

    def release(self, owner: str) -> None:
        """Give back what a run holds or waits for; releasing twice succeeds."""
        self._give_back(lambda now: now.without(entry for entry in now.all if entry.owner == owner))

    def drop(self, gone: Iterable[Reservation]) -> None:
        """Remove reservations that were forgotten, unless their runs have renewed them."""
        gone = tuple(gone)
        self._give_back(lambda now: now.without(gone))

    def readable(self) -> Reservations:
        """What is reserved now, nothing when the object is damaged: for the reaper, whose deletes depend on nothing."""
        try:
            return self.read()
        except (GrantUnknown, UnknownVersion) as error:
            log.error("no reservation is given back: %s", error)
            return NOTHING

    def _give_back(self, change: Callable[[Reservations], Reservations]) -> None:
        try:
            self.change(self.uri, RESERVATIONS_FORM, lambda now: None if now is None else change(now))
        except (GrantUnknown, UnknownVersion) as error:
            # Nothing can be taken from such an object either, so nothing is covered that should not be.
            log.error("nothing was given back: %s", error)
