# SPDX-License-Identifier: Apache-2.0
"""Ledgers that real runs have left: a file with an event a line, or a folder with the objects of a bucket's ledger.

The one beside this file is that of a soak, with one DAG run for each trouble in each phase (``scripts/soak matrix``).
Another one comes with ``gcloud storage cp -r gs://BUCKET/PREFIX/ledger FOLDER``.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from airflow_tpu.core.ledger.events import Closed, Opened, event_from_bytes

SOAK = Path(__file__).with_name("ledgers") / "soak.jsonl"
CHOSEN = "TPU_SAVED_LEDGER"
"""Environment variable that names another file or folder."""


def chosen() -> Path:
    """The ledger to show: the chosen one, else that of the soak."""
    return Path(os.environ.get(CHOSEN) or SOAK)


def saved_events(place: Path) -> list[Opened | Closed]:
    """Every event of a file, or below a folder.

    :raises LedgerError: a line, or a file with the name of an event, is none.
    """
    if place.is_file():
        return [event_from_bytes(line) for line in place.read_text(encoding="utf-8").splitlines()]
    found = [Path(parent) / name for parent, _, names in os.walk(place) for name in names]
    wanted = sorted(path for path in found if path.name in ("opened.json", "closed.json"))
    return [event_from_bytes(path.read_bytes()) for path in wanted]


def moved(events: Iterable[Opened | Closed], end: dt.datetime) -> Iterator[Opened | Closed]:
    """The same events, so much later that the last thing that happened in them is at ``end``."""
    events = list(events)
    by = end - max(at for event in events for at in _instants(event))
    for event in events:
        if isinstance(event, Opened):
            yield replace(event, requested_at=event.requested_at + by)
        else:
            yield replace(event, ready_at=_later(event.ready_at, by), ended_at=_later(event.ended_at, by))


def _instants(event: Opened | Closed) -> list[dt.datetime]:
    times = [event.requested_at] if isinstance(event, Opened) else [event.ready_at, event.ended_at]
    return [at for at in times if at is not None]


def _later(at: dt.datetime | None, by: dt.timedelta) -> dt.datetime | None:
    return None if at is None else at + by
