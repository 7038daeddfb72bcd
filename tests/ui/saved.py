"""Ledgers that real runs have left: any folder with the objects of ``gs://bucket/prefix/ledger``, at whatever depth.

Copy one with ``gcloud storage cp -r gs://BUCKET/PREFIX/ledger FOLDER``. The one beside this file is of whole DAG runs
against the local cloud: preemptions, stock-outs, a TPU that was never reached, a script that left nothing.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from airflow_tpu.core.ledger import Closed, Opened, read_event

REAL_RUNS = Path(__file__).with_name("ledgers") / "real_runs"
CHOSEN = "TPU_SAVED_LEDGER"
"""Environment variable that names another folder, such as what a soak run has left."""


def folder() -> Path:
    """The folder to show: the chosen one, else the one of this repository."""
    return Path(os.environ.get(CHOSEN) or REAL_RUNS)


def saved_events(place: Path) -> list[Opened | Closed]:
    """Every event below a folder.

    :raises LedgerError: a file with the name of an event is none.
    """
    found = [Path(parent) / name for parent, _, names in os.walk(place) for name in names]
    wanted = sorted(path for path in found if path.name in ("opened.json", "closed.json"))
    return [read_event(path.read_bytes()) for path in wanted]


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
