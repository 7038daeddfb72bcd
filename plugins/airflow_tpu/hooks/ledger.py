"""Append to the ledger and read it; two immutable objects per incarnation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger import ROOT, Closed, Opened, read_event
from airflow_tpu.hooks.store import Store

if TYPE_CHECKING:
    from airflow_tpu.core.names import RunKey


@dataclass(frozen=True)
class LedgerStore(Store):
    """The ledger below ``gs://bucket/prefix/ledger/``."""

    def open(self, event: Opened) -> None:
        """Write *opened*; a repetition finds the first one and leaves it."""
        self._append(event)

    def close(self, event: Closed) -> None:
        """Write *closed*; the first end that was noticed stays."""
        self._append(event)

    def events(self, key: RunKey | None = None) -> list[Opened | Closed]:
        """Events of one run, or of all."""
        names = self.names(f"{ROOT}/" + (f"{key.name}-" if key else ""))
        return [read_event(json.dumps(data)) for data in self.documents(names)]

    def open_records(self) -> list[Opened]:
        """Every *opened* without a *closed*, found by the names of one listing: only those few are read."""
        names = frozenset(self.names(f"{ROOT}/"))
        wanted = [name for name in names if name.endswith("/opened.json") and _closed_name(name) not in names]
        events = [read_event(json.dumps(data)) for data in self.documents(sorted(wanted))]
        return [event for event in events if isinstance(event, Opened)]

    def _append(self, event: Opened | Closed) -> None:
        # Generation 0 = only if absent: the objects are immutable, so losing this race is a success.
        self.hook.write_json(f"{self.root}/{event.path}", event.to_json(), generation=0)


def _closed_name(opened: str) -> str:
    return opened.removesuffix("opened.json") + "closed.json"
