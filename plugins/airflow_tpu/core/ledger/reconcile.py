# SPDX-License-Identifier: Apache-2.0
"""Compare the ledger with Google's own log of creates and deletes, in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_tpu.core.ledger.audit_log import AuditEntry
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.ledger.ledger_filter import LedgerFilter
from airflow_tpu.core.ledger.usage import paired
from airflow_tpu.core.tpu.resource_name import ResourceKind

TOLERANCE = timedelta(minutes=1)
"""How far two records of the same event may be apart: two clocks, and the time until we have noticed."""
_BY_GOOGLE = frozenset({EndReason.PREEMPTED, EndReason.VANISHED})


@dataclass(frozen=True)
class Difference:
    """Something on which ledger and log do not agree.

    :param resource: id of the node or queued resource.
    :param what: in words.
    :param ledger: the time in the ledger, None if it has none.
    :param log: the time in the log, None if it has none.
    """

    resource: str
    what: str
    ledger: datetime | None = None
    log: datetime | None = None

    @property
    def delta(self) -> timedelta | None:
        """How much later the ledger is, None if one of the times is missing."""
        return None if self.ledger is None or self.log is None else self.ledger - self.log

    def __str__(self) -> str:
        times = [f"{name} {_moment(at)}" for name, at in (("ledger", self.ledger), ("log", self.log)) if at]
        delta = f", {self.delta.total_seconds():+.0f} s" if self.delta is not None else ""
        return f"{self.resource}: {self.what}" + (f" ({', '.join(times)}{delta})" if times else "")


@dataclass
class Trace:
    """What the log has of one resource id: a node, its queued resource, or both under the same id.

    :ivar created: first time a create was accepted, None if none was.
    :ivar came: when the create of a node had ended well: it was READY then. A queued resource's says nothing of that.
    :ivar deleted: first time a delete was accepted.
    :ivar gone: last time a delete had ended.
    :ivar refused: why the last create that was refused or failed did so.
    :ivar who: account of the create.
    """

    created: datetime | None = None
    came: datetime | None = None
    deleted: datetime | None = None
    gone: datetime | None = None
    refused: str = ""
    who: str = ""

    def add(self, entry: AuditEntry) -> None:
        """Take one entry in; they come in the order of time."""
        if entry.is_create:
            self._add_create(entry)
        elif not entry.error:
            self.deleted = self.deleted or entry.at
            self.gone = entry.at if entry.is_last else self.gone

    def _add_create(self, entry: AuditEntry) -> None:
        if entry.error:
            self.refused = entry.error
        elif entry.is_last:
            self.came = self.came or (entry.at if entry.name.kind is ResourceKind.NODE else None)
        elif self.created is None:
            self.created, self.who = entry.at, entry.who


def reconcile(
    events: Iterable[Opened | Closed],
    entries: Iterable[AuditEntry],
    wanted: LedgerFilter,
    tolerance: timedelta = TOLERANCE,
) -> list[Difference]:
    """Every difference, in the order of the resources' names.

    :param events: the ledger.
    :param entries: the log.
    :param wanted: days to compare, by the create; what was created on others is left out on both sides. With a run or
        a DAG only the ledger's side is asked for: the log does not know them.
    :param tolerance: smaller distances in time are none.
    """
    pairs = {opened.node_id: (opened, closed) for opened, closed in paired(events)}
    traces = _traces(entries)
    found: list[Difference] = []
    for name in sorted(pairs.keys() | traces.keys()):
        trace = traces.get(name, Trace())
        if name not in pairs:
            found += _only_logged(name, trace, wanted)
        elif wanted.wants(pairs[name][0]):
            found += _compared(*pairs[name], trace, tolerance)
    return found


def _traces(entries: Iterable[AuditEntry]) -> dict[str, Trace]:
    traces: dict[str, Trace] = {}
    for entry in entries:
        traces.setdefault(entry.name.id, Trace()).add(entry)
    return traces


def _only_logged(name: str, trace: Trace, wanted: LedgerFilter) -> Iterator[Difference]:
    """A create that is not ours, or that the ledger has lost; one that was refused cost nothing."""
    if trace.created is None or wanted.run or wanted.dag:
        return
    if wanted.holds(trace.created.astimezone(UTC).date()):
        end = "not deleted since" if trace.deleted is None else f"deleted {_moment(trace.deleted)}"
        yield Difference(
            name, f"created by {trace.who or 'an unknown principal'}, not in the ledger, {end}", log=trace.created
        )


def _compared(opened: Opened, closed: Closed | None, trace: Trace, tolerance: timedelta) -> Iterator[Difference]:
    name = opened.node_id
    was_ready = closed is None or closed.ready_at is not None
    if trace.created is None:
        # The ledger is written before the call: a TPU that never came may never have been asked for.
        if was_ready:
            why = f"its create was refused: {trace.refused}" if trace.refused else "no create in the log"
            yield Difference(name, f"in the ledger, {why}", ledger=opened.requested_at)
        return
    if abs(opened.requested_at - trace.created) > tolerance:
        yield Difference(name, "ledger and log differ on the time of the create", opened.requested_at, trace.created)
    yield from _unseen(closed, trace, tolerance, name) if not was_ready else _ends(closed, trace, tolerance, name)


def _unseen(closed: Closed | None, trace: Trace, tolerance: timedelta, name: str) -> Iterator[Difference]:
    """A TPU that counts 0 hours in the ledger, and was READY by the log, or was there while nothing was known of it."""
    end = "no delete in the log: is it alive?" if trace.deleted is None else f"deleted {_moment(trace.deleted)}"
    if trace.came is not None and (trace.deleted is None or trace.deleted - trace.came > tolerance):
        yield Difference(name, f"never READY in the ledger, READY in the log, {end}", log=trace.came)
    elif trace.came is None and not trace.refused and closed is not None and closed.time_source is not TimeSource.API:
        yield Difference(
            name, f"0 hours in the ledger, though nothing told that it never came; {end}", log=trace.created
        )


def _ends(closed: Closed | None, trace: Trace, tolerance: timedelta, name: str) -> Iterator[Difference]:
    if closed is None:
        if trace.deleted is not None:
            yield Difference(name, "deleted, and without an end in the ledger", log=trace.deleted)
        return
    if trace.deleted is None:
        if closed.end_reason not in _BY_GOOGLE and closed.ready_at is not None:
            yield Difference(name, "ended in the ledger, no delete in the log: is it alive?", ledger=closed.ended_at)
        return
    end, last = closed.ended_at, trace.gone or trace.deleted
    if end is None:
        return
    # A preempted TPU ends before its terminated node is deleted, and nothing ends after it is gone.
    too_early = closed.end_reason not in _BY_GOOGLE and end < trace.deleted - tolerance
    if too_early or end > last + tolerance:
        yield Difference(
            name, "ledger and log differ on the time of the end", end, trace.deleted if too_early else last
        )


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
