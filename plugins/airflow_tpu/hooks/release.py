"""Give a TPU back: delete what is ours, wait until the API no longer knows it, close the ledger."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.names import token_of
from airflow_tpu.core.tpu import Phase, QueuedView
from airflow_tpu.errors import TransientError
from airflow_tpu.hooks.census import Census, take_census

if TYPE_CHECKING:
    from airflow_tpu.core.lease import Lease
    from airflow_tpu.core.names import RunKey
    from airflow_tpu.hooks.ledger import LedgerStore
    from airflow_tpu.hooks.tpu_client import OperationView, TPUClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """How one incarnation ended, as far as the API told.

    :param node_id: the incarnation.
    :param at: when its READY time ended.
    :param reason: why.
    :param source: whose clock.
    """

    node_id: str
    at: dt.datetime
    reason: EndReason
    source: TimeSource


async def request_delete(client: TPUClient, key: RunKey, token: str | None = None) -> list[Ending]:
    """Ask the API to delete every node and queued resource of a run; do not wait.

    :param client: the Cloud TPU API.
    :param key: whose; a colleague's resources, or another run's, are never touched.
    :param token: delete only what carries this attempt's token (None: the whole run has ended).
    :return: how the incarnations found alive ended.
    :raises TransientError: some zone did not answer, so nobody can say that nothing is left.
    """
    census = await take_census(client)
    nodes = [node for node in census.ours(key) if token in (None, token_of(node.labels))]
    queued = [item for item in census.queued_ours(key) if token in (None, token_of(item.labels))]
    endings = {item.queued_id: _before_delete(item.queued_id, item.phase) for item in queued}
    endings |= {node.node_id: _before_delete(node.node_id, node.phase) for node in nodes}
    by_queue = {item.queued_id: await client.delete_queued_resource(item.name) for item in queued if _deletable(item)}
    for node in nodes:
        operation = by_queue.get(node.node_id)
        if operation is None and node.phase is not Phase.DELETING:
            operation = await client.delete_node(node.name)
        endings[node.node_id] = _after_delete(endings[node.node_id], operation)
    if census.unreachable:
        raise TransientError(f"zones {', '.join(census.unreachable)} did not answer: what lives there is unknown")
    return list(endings.values())


def left_of(census: Census, key: RunKey) -> list[str]:
    """What the API still knows of a run, in words."""
    return [f"{item.name.split('/', 4)[-1]} ({item.state})" for item in census.all_ours(key)]


def close_incarnations(ledger: LedgerStore, lease: Lease | None, key: RunKey, endings: list[Ending]) -> None:
    """Write *closed* for every incarnation of a run that has none.

    :param ledger: where to.
    :param lease: what is known of each life; None when the lease is gone.
    :param key: the run.
    :param endings: incarnations that were alive when the delete was asked for.
    """
    events = ledger.events(key)
    closed = {event.node_id for event in events if isinstance(event, Closed)}
    known = {ending.node_id: ending for ending in endings}
    for event in events:
        if isinstance(event, Opened) and event.node_id not in closed:
            ledger.close(closing(event, lease, known.get(event.node_id)))


def closing(opened: Opened, lease: Lease | None, ending: Ending | None) -> Closed:
    """The *closed* event of an incarnation, from what is known of its life and its end."""
    life = lease.life(opened.node_id) if lease is not None else None
    ready_at = life.ready_at if life is not None else None
    if ready_at is None:
        # Never seen READY by us. What was alive at the end may have been READY unseen: then count from the request,
        # which is never too little, and say that it was observed.
        if ending is None or ending.reason is EndReason.NEVER_READY:
            return Closed(opened.node_id, None, None, EndReason.NEVER_READY, TimeSource.OBSERVED)
        ready_at = opened.requested_at
    now = dt.datetime.now(dt.UTC)
    end = ending or Ending(opened.node_id, now, EndReason.VANISHED, TimeSource.OBSERVED)
    exact = life is not None and life.source is TimeSource.API and end.source is TimeSource.API
    return Closed(
        node_id=opened.node_id,
        ready_at=ready_at,
        ended_at=max(end.at, ready_at),
        end_reason=end.reason,
        time_source=TimeSource.API if exact else TimeSource.OBSERVED,
        training_seconds=life.training_seconds if life is not None else 0.0,
        artifact_bytes=life.artifact_bytes if life is not None else 0,
    )


def _before_delete(node_id: str, phase: Phase) -> Ending:
    reasons = {
        Phase.USABLE: EndReason.FINISHED,
        Phase.UNHEALTHY: EndReason.FAILED,
        Phase.LOST: EndReason.PREEMPTED,
        Phase.DELETING: EndReason.DELETED,
    }
    reason = reasons.get(phase, EndReason.NEVER_READY)
    return Ending(node_id, dt.datetime.now(dt.UTC), reason, TimeSource.OBSERVED)


def _after_delete(ending: Ending, operation: OperationView | None) -> Ending:
    if operation is None or operation.started_at is None or ending.reason is EndReason.PREEMPTED:
        return ending
    return Ending(ending.node_id, operation.started_at, ending.reason, TimeSource.API)


def _deletable(queued: QueuedView) -> bool:
    # Forcing a delete while SUSPENDING is what Google advises against (note in apple/axlearn's TPU utilities).
    return queued.state not in ("DELETING", "SUSPENDING")
