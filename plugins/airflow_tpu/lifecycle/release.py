"""Give a TPU back: ask for its delete, note its end, and close its ledger record once the API no longer knows it.

Whoever asks does not have to be the one who sees it gone: the end is noted in the lease, and the next try, the teardown
or the reaper, whichever comes first after it, writes it to the ledger.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.clients.metrics import count
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.run.interruption import lost_seconds
from airflow_tpu.core.tpu.labels import token_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView, TPUView
from airflow_tpu.errors import TPUError, TransientError
from airflow_tpu.lifecycle.incarnation_end import Ending, noted, noted_end, settled
from airflow_tpu.lifecycle.project_snapshot import Census, look_again, own_names, take_census

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_messages import OperationView
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.stores.ledger import LedgerStore
    from airflow_tpu.stores.runs import RunStore

    Delete = Callable[[ResourceName], Awaitable[OperationView | None]]
    Answers = dict[str, OperationView | TPUError | None]

log = logging.getLogger(__name__)

_LOSSES = frozenset({EndReason.PREEMPTED, EndReason.VANISHED, EndReason.FAILED, EndReason.DELETED})
"""Ends that take with them what a run had not saved."""


@dataclass(frozen=True)
class Release:
    """What came of asking for deletes.

    :param endings: incarnations that were alive or left as husks, and how they ended.
    :param failures: what could not be deleted or looked at.
    """

    endings: list[Ending]
    failures: list[TPUError]

    def check(self) -> None:
        """Say that something may be left.

        :raises TPUError: the first failure; the others are in the log.
        """
        if self.failures:
            raise self.failures[0]

    def check_none(self) -> None:
        """Say that something was still alive, or may be.

        :raises TPUError: the first failure, or that what was found is only being deleted; to be tried again.
        """
        self.check()
        if self.endings:
            names = ", ".join(ending.node_id for ending in self.endings)
            raise TransientError(f"{names} came while its run was being ended, and is being deleted")


async def request_delete(client: TPUClient, key: RunKey, token: str | None = None) -> list[Ending]:
    """Ask the API to delete every node and queued resource of a run; do not wait.

    :param client: the Cloud TPU API.
    :param key: whose; a colleague's resources, or another run's, are never touched.
    :param token: delete only what carries this attempt's token (None: the whole run has ended).
    :return: how the incarnations found alive ended.
    :raises TPUError: something could not be deleted, or some zone did not answer; the rest was asked for all the same.
    """
    done = await delete_seen(client, await take_census(client), key, token)
    done.check()
    return done.endings


async def delete_seen(client: TPUClient, census: Census, key: RunKey, token: str | None = None) -> Release:
    """Ask for the delete of what a census has seen of a run; one failure does not stop the rest.

    :param client: the Cloud TPU API.
    :param census: what is there.
    :param key: whose.
    :param token: only what carries this attempt's token, None for everything of the run.
    """
    nodes = [node for node in census.ours(key) if token in (None, token_of(node.labels))]
    queued = [item for item in census.queued_ours(key) if token in (None, token_of(item.labels))]
    done = Release([], _unknown(census))
    operations: Answers = {}
    for item in queued:
        if _deletable(item):
            operations[item.queued_id] = await _delete(client.delete_queued_resource, item.name, done)
    for node in nodes:
        if operations.get(node.node_id) is None and node.phase is not Phase.DELETING:
            operations[node.node_id] = await _delete(client.delete_node, node.name, done)
    done.endings.extend(endings_of(nodes, queued, operations, client.clock.now()))
    return done


async def abandon(
    client: TPUClient, runs: RunStore, ledger: LedgerStore, key: RunKey, token: str, patience: float | None = None
) -> Release:
    """Ask for the delete of what an attempt has made, unless a newer one holds the lease by now, and note its end.

    The token on a node fences as well, but a queued resource keeps the labels it was made with, whoever adopts it.
    The note comes last; but nobody who looks later can know that a TPU was READY which no attempt had seen so.

    :param client: the Cloud TPU API.
    :param runs: where the run record is kept.
    :param ledger: where incarnations are recorded.
    :param key: whose.
    :param token: of the attempt that ends.
    :param patience: seconds for which the lease is waited for, None for as long as Cloud Storage's client does.
    """
    record = None
    try:
        record = await _found(runs, key, patience)
    except cloud_failures() as error:
        log.warning("the lease cannot be read (%s): only the token on the TPU decides", error)
    if record is not None and record.lease.token != token:
        log.info("a newer attempt holds the lease of %s: its TPU is left to that one", key.name)
        return Release([], [])
    census = await take_census(client)
    if record is not None:
        census = await look_again(client, census, own_names(client, record))
    done = await delete_seen(client, census, key, token)
    try:
        note_ends(runs, ledger, key, done.endings)
    except cloud_failures() as error:
        log.warning("the end cannot be noted (%s): whoever sees the TPU gone takes that for its end", error)
    return done


async def _found(runs: RunStore, key: RunKey, patience: float | None) -> RunRecord | None:
    if patience is None:
        return runs.find(key)
    # Cloud Storage's client tries again for two minutes; whoever has only seconds left must not spend them on that.
    return await asyncio.wait_for(asyncio.to_thread(runs.find, key), patience)


def note_ends(runs: RunStore, ledger: LedgerStore, key: RunKey, endings: list[Ending]) -> None:
    """Note in the lease how incarnations end if their deletes take effect; who sees them gone writes it to the ledger.

    Without a lease nobody could know it later, so then it is written at once.

    :param runs: where the run record is kept.
    :param ledger: where incarnations are recorded.
    :param key: the run.
    :param endings: what the deletes brought.
    """
    if endings and runs.amend(key, lambda record: noted(record, endings)) is None:
        close_ended(ledger, None, key, endings)


async def _delete(method: Delete, name: ResourceName, done: Release) -> OperationView | TPUError | None:
    try:
        return await method(name)
    except TPUError as error:
        log.error("could not delete %s: %s", name, error)
        done.failures.append(error)
        return error


def _unknown(census: Census) -> list[TPUError]:
    if not census.unreachable:
        return []
    zones = ", ".join(census.unreachable)
    return [TransientError(f"zones {zones} did not answer: what lives there is unknown")]


def left_of(census: Census, key: RunKey) -> list[str]:
    """What the API still knows of a run, in words."""
    return [f"{item.name.kind}/{item.name.id} ({item.state})" for item in census.all_ours(key)]


def close_incarnations(
    ledger: LedgerStore, record: RunRecord | None, key: RunKey, endings: list[Ending], up_to: int | None = None
) -> list[Opened]:
    """Write *closed* for every incarnation of a run that has none; only when nothing of the run is there any more.

    :param ledger: where to.
    :param record: what is known of each life; None when the lease is gone.
    :param key: the run.
    :param endings: incarnations that were alive when the delete was asked for.
    :param up_to: highest number that may be closed unseen; None: the whole run has ended.
    :return: the incarnations among them that nobody had seen: the create of one may still be on its way.
    """
    known = {ending.node_id: ending for ending in endings}
    unseen = []
    for event in ledger.open_records(key):
        if up_to is None or event.node_id in known or _number(event, key) <= up_to:
            close_record(ledger, event, closing(event, record, known.get(event.node_id), ledger.clock.now()))
            if event.node_id not in known:
                unseen.append(event)
    return unseen


def close_ended(ledger: LedgerStore, record: RunRecord | None, key: RunKey, endings: list[Ending]) -> None:
    """Write *closed* for the incarnations named, and no other: more may be alive.

    :param ledger: where to.
    :param record: what is known of each life.
    :param key: the run.
    :param endings: how they ended.
    """
    known = {ending.node_id: ending for ending in endings}
    for event in ledger.open_records(key):
        if event.node_id in known:
            close_record(ledger, event, closing(event, record, known[event.node_id], ledger.clock.now()))


def close_record(ledger: LedgerStore, opened: Opened, closed: Closed) -> None:
    """Write how an incarnation ended; of several who notice it, the one whose record it is counts it."""
    if ledger.close(closed):
        count(opened, closed)


def _number(event: Opened, key: RunKey) -> int:
    return int(event.node_id.removeprefix(f"{key.name}-"))


def closing(opened: Opened, record: RunRecord | None, ending: Ending | None, now: dt.datetime) -> Closed:
    """The *closed* event of an incarnation, from what is known of its life and its end, noticed now at the latest."""
    known = noted_end(record, opened.node_id)  # by whoever asked for its delete
    ending = next(iter(settled([known] if known else [], [ending] if ending else [])), None)
    life = record.life(opened.node_id) if record is not None else None
    ready_at = life.ready_at if life is not None else None
    if ready_at is None:
        # Never seen READY by us. What was alive at the end may have been READY unseen: then count from the request,
        # which is never too little, and say that it was observed.
        if ending is None or ending.reason is EndReason.NEVER_READY:
            return Closed(opened.node_id, None, None, EndReason.NEVER_READY, TimeSource.OBSERVED)
        ready_at = opened.requested_at
    end = ending or Ending(opened.node_id, now, EndReason.VANISHED, TimeSource.OBSERVED)
    exact = life is not None and life.source is TimeSource.API and end.source is TimeSource.API
    return Closed(
        node_id=opened.node_id,
        ready_at=ready_at,
        ended_at=max(end.at, ready_at),
        end_reason=end.reason,
        time_source=TimeSource.API if exact else TimeSource.OBSERVED,
        training_seconds=_trained(record, end),
        artifact_bytes=life.artifact_bytes if life is not None else 0,
        lost_seconds=_lost(record, end),
    )


def _trained(record: RunRecord | None, end: Ending) -> float:
    """Seconds of training: what the run reported, or up to its loss, which no run reports."""
    if record is None:
        return 0.0
    reported, began = record.life(end.node_id).training_seconds, _began(record, end.node_id)
    if reported or began is None or end.reason not in _LOSSES:
        return reported
    return max(0.0, (end.at - began).total_seconds())


def _lost(record: RunRecord | None, end: Ending) -> float | None:
    """Seconds of training since the newest safe checkpoint; None if nobody knows."""
    if end.reason not in _LOSSES:
        return 0.0
    if record is None:
        return None
    began = _began(record, end.node_id)
    if began is None and record.attempt_node != end.node_id:
        return 0.0  # nothing was started on it
    return None if end.safe is None else lost_seconds(end.at, began, end.safe.safe_at)


def _began(record: RunRecord, node_id: str) -> dt.datetime | None:
    """When training was last started on it; a lease of an earlier version knows that of its last attempt only."""
    return record.life(node_id).began_at or (record.attempt_at if record.attempt_node == node_id else None)


def endings_of(nodes: list[TPUView], queued: list[QueuedView], answers: Answers, now: dt.datetime) -> Iterator[Ending]:
    """How each incarnation ended; one that could not be deleted and was not lost either goes on.

    :param nodes: nodes as they were seen before the delete.
    :param queued: queued resources as they were seen before the delete.
    :param answers: what the deletes brought, by id of the incarnation.
    :param now: when the deletes had been asked for.
    """
    for node_id, reason in _reasons(nodes, queued).items():
        answer = answers.get(node_id)
        if node_id in answers and answer is None and reason in (EndReason.FINISHED, EndReason.FAILED):
            # Somebody was faster, or the list was behind: it is gone already, and not alive again.
            yield Ending(node_id, now, EndReason.VANISHED, TimeSource.OBSERVED)
        elif not isinstance(answer, TPUError):
            yield _after_delete(Ending(node_id, now, reason, TimeSource.OBSERVED), answer)
        elif reason is EndReason.PREEMPTED:
            yield Ending(node_id, now, reason, TimeSource.OBSERVED)


def _reasons(nodes: list[TPUView], queued: list[QueuedView]) -> dict[str, EndReason]:
    """Why each incarnation ended, by its id; a preempted queued resource deletes its node by itself.

    The nodes were listed first, and a laptop may have slept since: a node that was being created then, and whose queued
    resource was ACTIVE after that, has become READY.
    """
    reasons = {item.queued_id: _reason(item.phase) for item in queued}
    for item in nodes:
        known, reason = reasons.get(item.node_id), _reason(item.phase)
        became_ready = known is EndReason.FINISHED and reason is EndReason.NEVER_READY
        if known is not EndReason.PREEMPTED and not became_ready:
            reasons[item.node_id] = reason
    by_user = {item.queued_id for item in queued if item.phase is Phase.LOST and item.initiator == "USER"}
    return reasons | dict.fromkeys(by_user, EndReason.DELETED)


def _reason(phase: Phase) -> EndReason:
    reasons = {
        Phase.USABLE: EndReason.FINISHED,
        Phase.UNHEALTHY: EndReason.FAILED,
        Phase.LOST: EndReason.PREEMPTED,
        Phase.DELETING: EndReason.DELETED,
    }
    return reasons.get(phase, EndReason.NEVER_READY)


def _after_delete(ending: Ending, operation: OperationView | None) -> Ending:
    if operation is None or operation.started_at is None or ending.reason is EndReason.PREEMPTED:
        return ending
    # Found DELETING already, it may have been preempted before that: then the time is the latest possible one.
    source = TimeSource.OBSERVED if ending.reason is EndReason.DELETED else TimeSource.API
    return Ending(ending.node_id, operation.started_at, ending.reason, source)


def _deletable(queued: QueuedView) -> bool:
    # Forcing a delete while SUSPENDING is what Google advises against (note in apple/axlearn's TPU utilities).
    return queued.state not in ("DELETING", "SUSPENDING")
