# SPDX-License-Identifier: Apache-2.0
"""A part of the ledger: one run, one DAG, some days."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date

from airflow_tpu.core.ledger.events import Closed, Opened


@dataclass(frozen=True)
class LedgerFilter:
    """Choose incarnations of the ledger.

    :param run: name or digest of a session, digest or id of a DAG run, or the node id of one incarnation; empty for
        all.
    :param dag: id of a DAG; empty for all.
    :param begin: first UTC day on which an incarnation was asked for, None for no limit.
    :param end: last such day. An incarnation belongs to the day it was asked for, whole: so the periods of a
        calendar add up, and none counts twice.
    """

    run: str = ""
    dag: str = ""
    begin: date | None = None
    end: date | None = None

    def of(self, events: Iterable[Opened | Closed]) -> list[Opened | Closed]:
        """Events of the chosen incarnations."""
        events = list(events)
        opened = [event for event in events if isinstance(event, Opened)]
        unwanted = {event.node_id for event in opened if not self.wants(event)}
        return [event for event in events if event.node_id not in unwanted]

    def wants(self, event: Opened) -> bool:
        """Whether an incarnation is chosen."""
        names = (event.run, event.dag_run, event.run_id, event.node_id, event.node_id.rpartition("-")[0])
        if self.run and self.run not in names:
            return False
        if self.dag and self.dag != event.dag_id:
            return False
        return self.holds(event.requested_at.astimezone(UTC).date())

    def holds(self, day: date) -> bool:
        """Whether a day lies in the chosen period."""
        return (self.begin or day) <= day <= (self.end or day)
