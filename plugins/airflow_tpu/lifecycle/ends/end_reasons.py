# SPDX-License-Identifier: Apache-2.0
"""Why incarnations ended, from what was seen before their delete and what the delete was answered."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger.events import EndReason, TimeSource
from airflow_tpu.core.tpu.outcome import Observation, loss_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView, TPUView
from airflow_tpu.errors import (
    DeadlineExceeded,
    RemoteError,
    TPUError,
    TPULost,
    TPUPreempted,
    TPUStopped,
    TPUVanished,
)
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_messages import OperationView
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot

    Answers = dict[str, OperationView | TPUError | None]

_OF_LOSSES: dict[type[TPULost], EndReason] = {
    TPUPreempted: EndReason.PREEMPTED,
    TPUVanished: EndReason.VANISHED,
    TPUStopped: EndReason.DELETED,
}


_LOOK_HOLDS = dt.timedelta(seconds=10)
"""How long what was on its way at a look counts as such. After that, because a laptop slept or the API was slow, it may
have been READY and charged before its delete: what is unknown counts in full."""


def reason_of_error(error: TPUError) -> EndReason:
    """Why an incarnation ends whose run was ended by an error.

    :param error: the loss of the TPU, or what keeps the run from going on there.
    """
    return _OF_LOSSES.get(type(error), EndReason.FAILED) if isinstance(error, TPULost) else EndReason.FAILED


def cause_of(error: TPUError) -> EndReason | None:
    """Why a TPU ends that is given up for an error; None where what is seen of it tells that.

    :param error: what the try ends with.
    """
    if isinstance(error, DeadlineExceeded):
        return EndReason.DELETED
    return lasting_reason(error) if isinstance(error, TPULost | RemoteError) else None


def lasting_reason(error: TPUError) -> EndReason | None:
    """:func:`reason_of_error`, None where the TPU may come back.

    That is one which a person deletes: only the note of that delete says how it ended.
    """
    return None if isinstance(error, TPUVanished) else reason_of_error(error)


def endings_of(seen: ProjectSnapshot, answers: Answers, now: dt.datetime) -> Iterator[IncarnationEnd]:
    """How each incarnation ended; one that could not be deleted and was not lost either has not ended.

    :param seen: nodes and queued resources as they were before the delete.
    :param answers: what the deletes brought, by id of the incarnation.
    :param now: when the deletes had been asked for.
    """
    is_old = seen.at is not None and now - seen.at > _LOOK_HOLDS
    for node_id, reason in _reasons(seen.nodes, seen.queued).items():
        if is_old and reason is EndReason.NEVER_READY:
            reason = EndReason.FINISHED
        answer = answers.get(node_id)
        if node_id in answers and answer is None and reason in (EndReason.FINISHED, EndReason.FAILED):
            # Another process was faster, or the list was stale: it is gone already, and not alive again.
            yield IncarnationEnd(node_id, now, EndReason.VANISHED, TimeSource.OBSERVED)
        elif not isinstance(answer, TPUError):
            yield _after_delete(IncarnationEnd(node_id, now, reason, TimeSource.OBSERVED), answer)
        elif reason is EndReason.PREEMPTED:
            yield IncarnationEnd(node_id, now, reason, TimeSource.OBSERVED)


def _reasons(nodes: Sequence[TPUView], queued: Sequence[QueuedView]) -> dict[str, EndReason]:
    """Why each incarnation ended, by its id; a preempted queued resource deletes its node by itself.

    The nodes were listed first, and a laptop may have slept since: a node that was being created then, and whose queued
    resource was ACTIVE after that, has become READY.
    """
    reasons = {item.queued_id: _reason(item.phase) for item in queued}
    for item in nodes:
        known, reason = reasons.get(item.node_id), _reason_of_node(item)
        became_ready = known is EndReason.FINISHED and reason is EndReason.NEVER_READY
        goes_along = known is EndReason.DELETED and reason is EndReason.FINISHED  # with its request, which is DELETING
        if known is not EndReason.PREEMPTED and not became_ready and not goes_along:
            reasons[item.node_id] = reason
    by_user = {item.queued_id for item in queued if item.phase is Phase.LOST and item.initiator == "USER"}
    return reasons | dict.fromkeys(by_user, EndReason.DELETED)


def _reason_of_node(node: TPUView) -> EndReason:
    if node.has_been_ready:
        return EndReason.FAILED
    lost = loss_of(Observation(node.name, node, None)) if node.phase is Phase.LOST else None
    return _reason(node.phase) if lost is None else reason_of_error(lost)


def _reason(phase: Phase) -> EndReason:
    reasons = {
        Phase.USABLE: EndReason.FINISHED,
        Phase.UNHEALTHY: EndReason.FAILED,
        Phase.LOST: EndReason.PREEMPTED,
        Phase.DELETING: EndReason.DELETED,
        Phase.UNKNOWN: EndReason.FINISHED,  # it may be READY: unknown counts in full
    }
    return reasons.get(phase, EndReason.NEVER_READY)


def _after_delete(ending: IncarnationEnd, operation: OperationView | None) -> IncarnationEnd:
    if operation is None or operation.started_at is None or ending.reason is EndReason.PREEMPTED:
        return ending
    # Found DELETING already, it may have been preempted before that: then the time is the latest possible one.
    source = TimeSource.OBSERVED if ending.reason is EndReason.DELETED else TimeSource.API
    return IncarnationEnd(ending.node_id, operation.started_at, ending.reason, source)
