"""Append to the ledger and read it; two immutable objects per incarnation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger import ROOT, Closed, Opened, read_event

if TYPE_CHECKING:
    from airflow_tpu.core.names import RunKey
    from airflow_tpu.hooks.artifacts import ArtifactsHook


@dataclass(frozen=True)
class LedgerStore:
    """The ledger below ``gs://bucket/prefix/ledger/``.

    :param hook: Cloud Storage.
    :param root: ``gs://bucket/prefix`` of the grant.
    """

    hook: ArtifactsHook
    root: str

    def open(self, event: Opened) -> None:
        """Write *opened*; a repetition finds the first one and leaves it."""
        self._append(event)

    def close(self, event: Closed) -> None:
        """Write *closed*; the first end that was noticed stays."""
        self._append(event)

    def events(self, key: RunKey | None = None) -> list[Opened | Closed]:
        """Events of one run, or of all."""
        bucket = self.root.removeprefix("gs://").split("/", 1)[0]
        prefix = f"{self.root}/{ROOT}/" + (f"{key.name}-" if key else "")
        found = (self.hook.read_json(f"gs://{bucket}/{info.name}") for info in self.hook.listing(prefix))
        return [read_event(json.dumps(stored.data)) for stored in found if stored is not None]

    def open_records(self) -> list[Opened]:
        """Every *opened* without a *closed*, found by the names of one listing: only those few are read."""
        bucket = self.root.removeprefix("gs://").split("/", 1)[0]
        names = {info.name for info in self.hook.listing(f"{self.root}/{ROOT}/")}
        wanted = [name for name in names if name.endswith("/opened.json") and _closed_name(name) not in names]
        found = (self.hook.read_json(f"gs://{bucket}/{name}") for name in sorted(wanted))
        events = [read_event(json.dumps(stored.data)) for stored in found if stored is not None]
        return [event for event in events if isinstance(event, Opened)]

    def _append(self, event: Opened | Closed) -> None:
        # Generation 0 = only if absent: the objects are immutable, so losing this race is a success.
        self.hook.write_json(f"{self.root}/{event.path}", event.to_json(), generation=0)


def _closed_name(opened: str) -> str:
    return opened.removesuffix("opened.json") + "closed.json"
