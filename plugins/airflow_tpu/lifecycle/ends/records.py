"""Note how incarnations end, and close their ledger records once the API no longer knows them.

The process that asks for the delete does not have to be the one that sees the TPU gone: the end is noted in the lease,
and the next try, the teardown or the reaper, whichever comes first after it, writes it to the ledger.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.run.run_record import Life
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd, noted, noted_end, reason_of, settled

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.stores.ledger import LedgerStore
    from airflow_tpu.stores.runs import RunStore


_LOSSES = frozenset({EndReason.PREEMPTED, EndReason.VANISHED, EndReason.FAILED, EndReason.DELETED})
"""Ends that take with them what a run had not saved."""


def note_ends(leases: RunStore, ledger: LedgerStore, key: RunKey, endings: list[IncarnationEnd]) -> None:
    """Note in the lease how incarnations end if their deletes take effect; who sees them gone writes it to the ledger.

    Without a lease it could not be found out later, so then it is written at once.

    :param leases: where the record is kept.
    :param ledger: where incarnations are recorded.
    :param key: the run.
    :param endings: what the deletes brought.
    """
    if endings and leases.amend(key, lambda record: noted(record, endings)) is None:
        close_ended(ledger, None, key, endings)


def close_incarnations(
    ledger: LedgerStore, record: RunRecord | None, key: RunKey, endings: list[IncarnationEnd], up_to: int | None = None
) -> list[Opened]:
    """Write *closed* for every incarnation of a run that has none; only when nothing of the run is there any more.

    :param ledger: where to.
    :param record: what is known of each life; None when the record is gone.
    :param key: the run.
    :param endings: incarnations that were alive when the delete was asked for.
    :param up_to: highest number that may be closed unseen; None: the whole run has ended.
    :return: the incarnations among them that were not known: the create of one may still be on its way.
    """
    known = {ending.node_id: ending for ending in endings}

    def end(opened: Opened) -> Closed | None:
        has_ended = up_to is None or opened.node_id in known or _number(opened, key) <= up_to
        return closing(opened, record, known.get(opened.node_id), ledger.clock.now()) if has_ended else None

    return [opened for opened in ledger.close_open(key, end) if opened.node_id not in known]


def close_ended(ledger: LedgerStore, record: RunRecord | None, key: RunKey, endings: list[IncarnationEnd]) -> None:
    """Write *closed* for the incarnations named, and no other: more may be alive.

    :param ledger: where to.
    :param record: what is known of each life.
    :param key: the run.
    :param endings: how they ended.
    """
    known = {ending.node_id: ending for ending in endings}

    def end(opened: Opened) -> Closed | None:
        ending = known.get(opened.node_id)
        return None if ending is None else closing(opened, record, ending, ledger.clock.now())

    ledger.close_open(key, end)


def _number(event: Opened, key: RunKey) -> int:
    return int(event.node_id.removeprefix(f"{key.name}-"))


def closing(opened: Opened, record: RunRecord | None, ending: IncarnationEnd | None, now: dt.datetime) -> Closed:
    """The *closed* event of an incarnation, from what is known of its life and its end, noticed now at the latest.

    What is not known counts in full: 0 hours are written only for a TPU of which the API has told that it never came.
    """
    known = noted_end(record, opened.node_id)  # by the process that requested the delete
    ending = next(iter(settled([known] if known else [], [ending] if ending else [])), None)
    life = record.life(opened.node_id) if record is not None else Life()
    ready_at = life.ready_at
    if ready_at is None:
        if ending is not None and ending.reason is EndReason.NEVER_READY:
            return Closed(opened.node_id, None, None, EndReason.NEVER_READY, TimeSource.API)
        # Never seen READY by us, and it may have been READY unseen, even if it has been deleted since by hand: count
        # from the request, which is never too little, and say that it was observed.
        ready_at = opened.requested_at
    end = ending or IncarnationEnd(opened.node_id, now, _unseen(record, now), TimeSource.OBSERVED)
    end = replace(end, reason=reason_of(life, end.reason))
    exact = life.source is TimeSource.API and end.source is TimeSource.API
    return Closed(
        node_id=opened.node_id,
        ready_at=ready_at,
        ended_at=max(end.at, ready_at),
        end_reason=end.reason,
        time_source=TimeSource.API if exact else TimeSource.OBSERVED,
        training_seconds=_trained(record, end),
        artifact_bytes=life.artifact_bytes,
        lost_seconds=_lost(record, end),
    )


def _unseen(record: RunRecord | None, now: dt.datetime) -> EndReason:
    """Why an incarnation is gone whose end no process of ours has noted."""
    overdue = record is not None and record.lease.expires_at <= now  # then the guard on the VM deletes it
    return EndReason.DELETED if overdue else EndReason.VANISHED


def _trained(record: RunRecord | None, end: IncarnationEnd) -> float:
    """Seconds of training: what the run reported, or up to its loss, which no run reports."""
    if record is None:
        return 0.0
    reported, began = record.life(end.node_id).training_seconds, _began(record, end.node_id)
    if reported or began is None or end.reason not in _LOSSES:
        return reported
    return max(0.0, (end.at - began).total_seconds())


def _lost(record: RunRecord | None, end: IncarnationEnd) -> float | None:
    """Seconds of training since the newest safe checkpoint; None if unknown."""
    # After a result of its own nothing of the run has to be done again, whatever comes over the TPU.
    if end.reason not in _LOSSES or (record is not None and record.life(end.node_id).cause is EndReason.FINISHED):
        return 0.0
    if record is None:
        return None
    began = _began(record, end.node_id)
    if began is None and record.attempt_node != end.node_id:
        return 0.0  # nothing was started on it
    return record.life(end.node_id).lost_seconds if end.lost_seconds is None else end.lost_seconds


def _began(record: RunRecord, node_id: str) -> dt.datetime | None:
    """When training was last started on it; a lease of an earlier version knows that of its last attempt only."""
    return record.life(node_id).began_at or (record.attempt_at if record.attempt_node == node_id else None)
