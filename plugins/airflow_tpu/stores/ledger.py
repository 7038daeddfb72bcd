# SPDX-License-Identifier: Apache-2.0
"""Append to the ledger and read it; two immutable objects per incarnation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from airflow_tpu.clients.metrics import count
from airflow_tpu.core.ledger.events import (
    ROOT,
    Closed,
    Opened,
    event_at,
    event_to_json,
    is_event,
    node_id_of,
)
from airflow_tpu.core.ledger.incarnation import unpriced
from airflow_tpu.core.ledger.month_archive import ROOT as MONTHS
from airflow_tpu.errors import DamagedObject
from airflow_tpu.stores.ledger_reader import LedgerReader
from airflow_tpu.stores.store import Contents, Store

if TYPE_CHECKING:
    from airflow_tpu.core.tpu.labels import RunKey


@dataclass(frozen=True)
class LedgerStore(Store):
    """The ledger below ``gs://bucket/prefix/ledger/``; events never change, so each is read once by a task."""

    _read: dict[str, Opened | Closed] = field(default_factory=dict, init=False, repr=False, compare=False)

    def open(self, event: Opened) -> bool:
        """Write *opened*; a repetition finds the first one and leaves it.

        :return: False when another process has opened this incarnation.
        """
        return self._append(event)

    def close(self, opened: Opened, closed: Closed) -> bool:
        """Write *closed*; the first end that was noticed stays, and is the one that the metrics count.

        :param opened: the incarnation.
        :param closed: how it ended.
        :return: whether this one is it.
        """
        is_first = self._append(closed)
        if is_first:
            count(unpriced(opened, closed))
        return is_first

    def close_open(self, key: RunKey, end: Callable[[Opened], Closed | None]) -> list[Opened]:
        """Write *closed* for the open incarnations of a run that have ended.

        :param key: the run.
        :param end: how an incarnation ended, None for one that stays open.
        :return: those that were open and have ended.
        :raises DamagedObject: one cannot be read; the others are closed.
        """
        found = self.open_contents(key)
        ended = [(opened, closed) for opened in found.values if (closed := end(opened)) is not None]
        for opened, closed in ended:
            self.close(opened, closed)
        for damaged in found.unknown.values():
            if isinstance(damaged, DamagedObject):  # one of another release is closed by that release
                raise damaged
        return [opened for opened, _ in ended]

    def last_incarnation(self, key: RunKey) -> int:
        """Highest number of a TPU of this run, 0 without any: records are immutable, so each number is used once."""
        numbers = [name.rsplit("/", 2)[-2].removeprefix(f"{key.name}-") for name in self.names(f"{ROOT}/{key.name}-")]
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def events(self, key: RunKey | None = None) -> list[Opened | Closed]:
        """Events of one run, or of all; an incarnation with an event that cannot be read is logged and left out."""
        if key is None:
            return LedgerReader().events(self.hook, self.root)
        found = self._events(filter(is_event, self.names(f"{ROOT}/{key.name}-")))
        unknown = {node_id_of(name) for name in found.unknown}
        return [event for event in found.values if event.node_id not in unknown]

    def verify(self) -> list[str]:
        """Read every event from its own object, and compare with what the months hold; wrong months are removed.

        :return: ids of the incarnations that differ.
        """
        by_months = set(LedgerReader().events(self.hook, self.root))
        differing = by_months ^ set(LedgerReader(trusts_months=False).events(self.hook, self.root))
        if differing:
            bucket = self.root.removeprefix("gs://").partition("/")[0]
            for name in self.names(f"{MONTHS}/"):
                self.hook.remove(f"gs://{bucket}/{name}")
        return sorted({event.node_id for event in differing})

    def open_records(self, key: RunKey | None = None) -> list[Opened]:
        """Every *opened* without a *closed* that can be read.

        :param key: of one run only.
        """
        return list(self.open_contents(key).values)

    def open_contents(self, key: RunKey | None = None) -> Contents[Opened]:
        """Every *opened* without a *closed*, found by the names of one listing: only those few are read.

        :param key: of one run only.
        """
        names = frozenset(self.names(f"{ROOT}/" + (f"{key.name}-" if key else "")))
        wanted = [name for name in names if name.endswith("/opened.json") and _closed_name(name) not in names]
        return self._opened(sorted(wanted))

    def zones(self, key: RunKey) -> set[str] | None:
        """Zones in which a run has ever asked for a TPU; None if a record cannot be read: that zone is not known."""
        names = self.names(f"{ROOT}/{key.name}-")
        found = self._opened(name for name in names if name.endswith("/opened.json"))
        return None if found.unknown else {event.zone for event in found.values}

    def _opened(self, names: Iterable[str]) -> Contents[Opened]:
        return cast("Contents[Opened]", self._events(names))  # their places say so

    def _events(self, names: Iterable[str]) -> Contents[Opened | Closed]:
        wanted = list(names)
        fresh = [name for name in wanted if name not in self._read]

        def read(data: object, name: str) -> Opened | Closed:
            event = self._read[name] = event_at(data, name)
            return event

        unknown = self.contents(fresh, read).unknown
        return Contents([self._read[name] for name in wanted if name in self._read], unknown)

    def _append(self, event: Opened | Closed) -> bool:
        # Generation 0 = only if absent: the objects are immutable, so losing this race is a success.
        return self.hook.write_json(f"{self.root}/{event.path}", event_to_json(event), generation=0) is not None


def _closed_name(opened: str) -> str:
    return opened.removesuffix("opened.json") + "closed.json"
