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

    def _append(self, event: Opened | Closed) -> None:
        # Generation 0 = only if absent: the objects are immutable, so losing this race is a success.
        self.hook.write_json(f"{self.root}/{event.path}", event.to_json(), generation=0)
