"""Keep the object in which runs write down what they take from the grant."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.grant.reservations import NOTHING, OBJECT, Reservation, Reservations
from airflow_tpu.errors import Fault, GrantUnknown, TransientError
from airflow_tpu.stores.store import Store

if TYPE_CHECKING:
    from airflow_tpu.core.grant.authorize import Permit

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 4.0


@dataclass(frozen=True)
class ReservationStore(Store):
    """``gs://bucket/prefix/reservations.json``, replaced only at the generation it was read at.

    :param patience: seconds for which lost races are repeated. Cloud Storage takes about one write a second to one
        object, so fifty runs that start together need a minute.
    :param pause: seconds before the first repetition, on average half of it; it doubles.
    """

    patience: float = 300.0
    pause: float = 0.25

    @property
    def uri(self) -> str:
        """Where the object is."""
        return f"{self.root}/{OBJECT}"

    def read(self) -> Reservations:
        """What is reserved now.

        :raises GrantUnknown: the object is damaged.
        """
        return self._read()[0]

    def take(self, wanted: Reservation, decide: Callable[[Reservations], Permit]) -> Permit:
        """Reserve, if the grant has room beside what others have reserved.

        :param wanted: what to reserve; a reservation that the run holds already is kept or replaced.
        :param decide: gives the permit or raises; it is asked again each time somebody else was faster.
        :return: the permit; from here on everybody else counts this reservation.
        :raises GrantError: from ``decide``; then nothing was reserved.
        :raises TransientError: others were faster for too long.
        """
        permits: list[Permit] = []

        def taken(now: Reservations) -> Reservations:
            permits.append(decide(now))
            held = now.of(wanted.owner) == wanted
            return now if held else now.taken(wanted, self.clock.now())

        self._change(taken)
        return permits[-1]

    def release(self, owner: str) -> None:
        """Give back what a run holds; releasing twice succeeds."""
        self._give_back(lambda now: now.without(entry for entry in now.entries if entry.owner == owner))

    def drop(self, gone: Iterable[Reservation]) -> None:
        """Remove reservations that were forgotten, unless their runs have renewed them."""
        gone = tuple(gone)
        self._give_back(lambda now: now.without(gone))

    def readable(self) -> Reservations:
        """What is reserved now, nothing when the object is damaged: for the reaper, whose deletes depend on nothing."""
        try:
            return self.read()
        except GrantUnknown as error:
            log.error("%s", error)
            return NOTHING

    def _give_back(self, change: Callable[[Reservations], Reservations]) -> None:
        try:
            self._change(change)
        except GrantUnknown as error:
            # Nothing can be taken from a damaged object either, so nothing is covered that should not be.
            log.error("nothing was given back: %s", error)

    def _change(self, change: Callable[[Reservations], Reservations]) -> None:
        pause, until = self.pause, self.clock.monotonic() + self.patience
        while True:
            current, generation = self._read()
            changed = change(current)
            if changed == current or self.hook.write_json(self.uri, changed.to_json(), generation) is not None:
                return
            if self.clock.monotonic() > until:
                raise TransientError(f"{self.uri} has been written by others for {self.patience:.0f} s; try again")
            self.clock.sleep(random.uniform(0, pause))  # noqa: S311 - spreads the writers, protects nothing
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _read(self) -> tuple[Reservations, int]:
        try:
            found = self.hook.read_json(self.uri)
        except ValueError as error:
            problem = f"is not JSON ({error}); when no run is in progress, delete it"
            raise GrantUnknown([Fault("reservations", self.uri, problem)], "what runs have reserved") from error
        return (NOTHING, 0) if found is None else (Reservations.from_json(found.data), found.generation)
