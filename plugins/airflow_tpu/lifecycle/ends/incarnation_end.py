# SPDX-License-Identifier: Apache-2.0
"""How an incarnation ended, and what is known of it while its delete is still under way.

A delete that was accepted may fail a minute later: the TPU is READY again, and charged until the next delete. So the
end is noted in the lease when it is asked for, and goes to the ledger, which is never changed, when the TPU is gone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.run.run_record import Life
from airflow_tpu.core.tpu.startup_script import ARRIVAL_SECS

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import RunRecord

NEWS = frozenset({EndReason.FINISHED, EndReason.FAILED, EndReason.PREEMPTED})
"""What a later look may tell that changes an end: the TPU was alive again. Any other is the trace of our own delete."""

_FOREIGN = frozenset({EndReason.VANISHED, EndReason.DELETED})
"""Ends that look the same whether a process of ours, which died before it could note that, or a stranger deleted it."""

_LOSSES = frozenset({EndReason.PREEMPTED, EndReason.VANISHED, EndReason.FAILED, EndReason.DELETED, EndReason.STOPPED})
"""Ends that take with them what a run had not saved."""


CUT_OFF = frozenset({EndReason.STOPPED, EndReason.DELETED})
"""Causes of an end that a delete of ours brought about while the script may have been running."""


@dataclass(frozen=True)
class IncarnationEnd:
    """How one incarnation ended, as far as the API told.

    :param node_id: the incarnation.
    :param at: when its READY time ended.
    :param reason: why.
    :param source: whose clock.
    :param lost_seconds: work that is lost with it, None if not looked up.
    """

    node_id: str
    at: dt.datetime
    reason: EndReason
    source: TimeSource
    lost_seconds: float | None = None


def settled(first: Iterable[IncarnationEnd], later: Iterable[IncarnationEnd]) -> list[IncarnationEnd]:
    """The end of each incarnation after several looks: the last one at which it was alive or newly lost.

    :param first: as known until now.
    :param later: of a later delete.
    """
    known = {ending.node_id: ending for ending in first}
    for ending in later:
        earlier = known.get(ending.node_id)
        if earlier is None:
            known[ending.node_id] = ending
        elif _is_news(ending, earlier):
            # While the first delete was under way nothing was charged, and how long that was is unknown.
            again = earlier.reason in NEWS
            known[ending.node_id] = replace(ending, source=TimeSource.OBSERVED) if again else ending
    return list(known.values())


def _is_news(ending: IncarnationEnd, earlier: IncarnationEnd) -> bool:
    if ending.reason not in NEWS or earlier.reason is EndReason.PREEMPTED:
        return False
    # Two processes may write their notes the other way round than they have looked.
    return earlier.reason not in NEWS or ending.at > earlier.at


def noted(record: RunRecord, endings: Iterable[IncarnationEnd]) -> RunRecord:
    """The lease with what is known of the ends: a task that dies before its TPU is gone must not lose it.

    :param record: as it is.
    :param endings: what the deletes brought.
    """
    for end in settled(noted_ends(record), endings):
        lost = record.life(end.node_id).lost_seconds if end.lost_seconds is None else end.lost_seconds
        record = record.with_life(
            end.node_id, ended_at=end.at, end_reason=end.reason, end_source=end.source, lost_seconds=lost
        )
    return record


def reason_of(life: Life, seen: EndReason) -> EndReason:
    """Why an incarnation ended: what its run came to, before what the API showed of the TPU afterwards.

    A host that was given up is READY when it is deleted, and a TPU whose run has ended well may be under maintenance
    by then. A preemption is Google's own act and stays one, and so does an end that no teardown of ours has begun.

    :param life: what is known of the incarnation.
    :param seen: the reason by the state of its node.
    """
    if seen is EndReason.NEVER_READY and life.ready_at is not None:
        seen = EndReason.FAILED  # it was on its way back
    if seen in _FOREIGN:
        return (life.cause or EndReason.FINISHED) if life.deleting else seen
    return seen if life.cause is None or seen is EndReason.PREEMPTED else life.cause


def caused(end: IncarnationEnd, cause: EndReason | None) -> IncarnationEnd:
    """The end of an incarnation without a lease that could keep why it was deleted.

    :param end: by the state of its node.
    :param cause: why it was deleted, None if only the state tells.
    """
    if end.reason is EndReason.NEVER_READY:
        return end
    return replace(end, reason=reason_of(Life(cause=cause), end.reason))


def alive_again(record: RunRecord, node_id: str) -> RunRecord:
    """The lease without the end of an incarnation that is used again: its delete has failed.

    :param record: as it is.
    :param node_id: the incarnation.
    """
    life = record.life(node_id)
    if life.cause in CUT_OFF:  # the script was not stopped either
        record = record.with_life(node_id, cause=None, lost_seconds=None)
    # While the delete was under way nothing was charged: its READY time is no longer known to the second.
    return record.with_life(node_id, source=TimeSource.OBSERVED, ended_at=None, end_reason=None, deleting=False)


def noted_ends(record: RunRecord | None) -> list[IncarnationEnd]:
    """What was noted of the ends of all incarnations; nothing when the record is gone."""
    lives = record.lives if record is not None else {}
    return [ending for node_id in lives if (ending := noted_end(record, node_id)) is not None]


def noted_end(record: RunRecord | None, node_id: str) -> IncarnationEnd | None:
    """What was noted of an incarnation's end, None if nothing was.

    :param record: None when it is gone.
    :param node_id: the incarnation.
    """
    life = record.life(node_id) if record is not None else None
    if life is None or life.ended_at is None or life.end_reason is None:
        return None
    return IncarnationEnd(node_id, life.ended_at, life.end_reason, life.end_source, life.lost_seconds)


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
    end = ending or IncarnationEnd(opened.node_id, now, _unseen(opened, record, now), TimeSource.OBSERVED)
    end = replace(end, reason=reason_of(life, end.reason))
    exact = life.source is TimeSource.API and end.source is TimeSource.API
    return Closed(
        node_id=opened.node_id,
        ready_at=ready_at,
        ended_at=max(end.at, ready_at),
        end_reason=end.reason,
        time_source=TimeSource.API if exact else TimeSource.OBSERVED,
        lost_seconds=_lost(record, end),
        training_seconds=_trained(record, end),
        artifact_bytes=life.artifact_bytes,
    )


def _unseen(opened: Opened, record: RunRecord | None, now: dt.datetime) -> EndReason:
    """Why an incarnation is gone whose end no process of ours has noted.

    The guard on the VM deletes it when its deadline has passed, or when no run has reached it for so long.
    """
    if record is None:
        return EndReason.VANISHED
    life = record.life(opened.node_id)
    arrives_by = (life.ready_at or opened.requested_at) + dt.timedelta(seconds=ARRIVAL_SECS)
    is_unattended = life.began_at is None and arrives_by <= now
    return EndReason.DELETED if is_unattended or record.lease.expires_at <= now else EndReason.VANISHED


def _trained(record: RunRecord | None, end: IncarnationEnd) -> float:
    """Seconds of training: what was reported, and up to the loss of the TPU what no run reports."""
    if record is None:
        return 0.0
    life, last = record.life(end.node_id), record.last_attempt(record.current)
    is_reported = last.node_id == end.node_id and last.seconds > 0
    if is_reported or life.began_at is None or end.reason not in _LOSSES:
        return life.training_seconds
    return life.training_seconds + max(0.0, (end.at - life.began_at).total_seconds())


def _lost(record: RunRecord | None, end: IncarnationEnd) -> float | None:
    """Seconds of training since the newest safe checkpoint; None if unknown."""
    if record is None:
        return None
    # After a result of its own nothing of the run has to be done again, whatever comes over the TPU.
    if end.reason not in _LOSSES or record.life(end.node_id).cause is EndReason.FINISHED:
        return 0.0
    life = record.life(end.node_id)
    if life.began_at is None:
        return 0.0  # nothing was started on it
    return life.lost_seconds if end.lost_seconds is None else end.lost_seconds
