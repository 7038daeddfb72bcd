"""How an incarnation ended, and what is known of it while its delete is still under way.

A delete that was accepted may fail a minute later: the TPU is READY again, and charged until the next delete. So the
end is noted in the lease when it is asked for, and goes to the ledger, which is never changed, when the TPU is gone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger.events import EndReason, TimeSource

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import Life, RunRecord

NEWS = frozenset({EndReason.FINISHED, EndReason.FAILED, EndReason.PREEMPTED})
"""What a later look may tell that changes an end: the TPU was alive again. Any other is the trace of our own delete."""

_FOREIGN = frozenset({EndReason.VANISHED, EndReason.DELETED})
"""Ends that look the same whether a process of ours, which died before it could note that, or a stranger deleted it."""


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


def alive_again(record: RunRecord, node_id: str) -> RunRecord:
    """The lease without the end of an incarnation that is used again: its delete has failed.

    :param record: as it is.
    :param node_id: the incarnation.
    """
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
