# SPDX-License-Identifier: Apache-2.0
"""Delete what an attempt or an overdue run still holds, now and without waiting: a person, a deadline or a failure.

Nothing here waits until a TPU is gone. The end is noted in the lease, for the process that sees it gone: the next try,
the teardown or the reaper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.consequences import BEING_DELETED, LOST
from airflow_tpu.core.ledger.events import EndReason, TimeSource
from airflow_tpu.core.run.expiry import select_expired
from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.core.tpu.labels import token_of
from airflow_tpu.errors import (
    CloudError,
    CreateUnanswered,
    HostLost,
    TPUError,
    TPULost,
    TPUVanished,
    UnknownVersion,
)
from airflow_tpu.lifecycle.ends.deletion import Release, delete_all, delete_seen
from airflow_tpu.lifecycle.ends.end_reasons import cause_of, reason_of_error
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd
from airflow_tpu.lifecycle.ends.records import close_ended, note_before, note_ends
from airflow_tpu.lifecycle.project_snapshot import (
    ProjectSnapshot,
    look_again,
    named_zones,
    own_names,
    snapshot_for_run,
    take_snapshot,
)
from airflow_tpu.lifecycle.training.losses import Ended, lost_since, newest_checkpoint

if TYPE_CHECKING:
    import datetime as dt

    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.lifecycle.run_context import GrantContext, RunContext
    from airflow_tpu.stores.grant_stores import Stores

log = logging.getLogger(__name__)
T = TypeVar("T")


def abandon(
    run: RunContext,
    token: str,
    lease_seconds: float | None = None,
    known: IncarnationEnd | None = None,
    cause: EndReason | None = EndReason.STOPPED,
) -> Release:
    """Delete what an attempt has made or adopted, unless a newer one holds the lease by now, and note its end.

    A request, or a node on its way, keeps the token of the attempt that made it when a later one adopts it. So the
    holder of the lease deletes what older attempts have made as well; without the lease the token alone decides.

    :param run: whose.
    :param token: of the attempt that ends.
    :param lease_seconds: for how long the record is waited for, None for as long as Cloud Storage's client does.
    :param known: an end that no delete tells; it is noted with those that the deletes bring.
    :param cause: why its TPU ends; STOPPED: the task is ended from outside, by a person or a signal.
    :return: what the deletes brought, failures included.
    """
    stores: Stores | None = None
    try:
        stores = run.stores
    except TPUError as error:  # no delete depends on the grant
        log.warning("the bucket of the grant is unknown (%s): deleting by the token on the TPU alone", error)
    kill = _Kill(stores, run.key, token, lease_seconds, cause)
    done = run.clients.tpu.run(lambda client: _abandon(client, kill))
    if stores is not None and done is not None:
        _note(stores, run.key, [done.endings, [known] if known is not None else []], cause)
    return done or Release([], [])


@dataclass(frozen=True)
class _Kill:
    """What :func:`abandon` works with.

    :param stores: None while the grant, which names their place, cannot be read.
    :param key: whose TPU.
    :param token: of the attempt.
    :param seconds: for how long an answer of the bucket is waited for.
    :param cause: why its TPU ends.
    """

    stores: Stores | None
    key: RunKey
    token: str
    seconds: float | None
    cause: EndReason | None

    async def found(self) -> RunRecord | None:
        """The record of the run, None without one."""
        stores = self.stores
        return await self._within(lambda: stores.runs.find(self.key)) if stores is not None else None

    async def noted(self, deleted: ProjectSnapshot) -> None:
        """Note what is deleted, and why, before it is."""
        stores = self.stores
        if stores is None:
            return
        try:
            await self._within(lambda: note_before(stores, self.key, deleted, self.token, self.cause))
        except TimeoutError:
            log.warning("why the TPU of %s is deleted could not be noted in time", self.key.name)

    async def _within(self, work: Callable[[], T]) -> T:
        if self.seconds is None:
            return work()
        # Cloud Storage's client tries again for two minutes, which an attempt with only seconds left cannot spare.
        return await asyncio.wait_for(asyncio.to_thread(work), self.seconds)


async def _abandon(client: TPUClient, kill: _Kill) -> Release | None:
    """Delete what the token allows; None where a newer attempt, or one of another release, holds the lease."""
    key, token = kill.key, kill.token
    # The lease is read after the lists: while it is ours, nothing in them was made or adopted by a newer attempt.
    snapshot, record = await take_snapshot(client), None
    try:
        record = await kill.found()
    except UnknownVersion as error:
        log.warning("%s; its TPU is left alone", error)
        return None
    except cloud_failures() as error:
        log.warning("the lease cannot be read (%s): deleting by the token on the TPU alone", error)
    if record is not None and record.lease.token != token:
        log.info("a newer attempt holds the lease of %s: its TPU is left alone", key.name)
        return None
    if record is not None:
        # On a kill there is no time to read the ledger: this attempt is where the record's current incarnation is.
        held = await _held(client, snapshot.for_zones({record.zone}), token, record)
        noting = kill.noted(held)
        if kill.seconds is None:
            await noting
            return await delete_seen(client, held, key)
        # A kill has no time for one after the other.
        return (await asyncio.gather(noting, delete_seen(client, held, key)))[1]
    return await delete_seen(client, snapshot, key, token)


async def _held(client: TPUClient, listed: ProjectSnapshot, token: str, record: RunRecord) -> ProjectSnapshot:
    """What the holder of a lease may delete: what carries its token, or that of an attempt before it."""
    key = record.key
    tokens = {token, *(token_of(item.labels) for item in listed.all_ours(key))}
    found = await look_again(client, listed, own_names(client, record))
    return found.named({item.name for item in found.all_ours(key) if token_of(item.labels) in tokens})


def _note(stores: Stores, key: RunKey, told: list[list[IncarnationEnd]], cause: EndReason | None) -> None:
    """Note ends, those that are told later after the others: together they may change what was noted first."""
    try:
        # The note comes last; but no later look can tell that a TPU was READY which no attempt had seen so.
        for endings in told:
            note_ends(stores.runs, stores.ledger, key, endings, cause)
    except cloud_failures() as error:
        log.warning("the end cannot be noted (%s): the instant at which the TPU is seen gone counts instead", error)


def give_back(run: RunContext, record: RunRecord, error: TPUError, holds_lease: bool) -> None:
    """Delete what an attempt without a usable TPU has made, and end the incarnation that it has lost.

    :param run: clients and stores.
    :param record: of the run, as this attempt knows it.
    :param error: why there is no TPU; its consequence is filled in.
    :param holds_lease: only the holder of the lease knows which incarnation was lost.
    """
    if isinstance(error, TPULost) and holds_lease:
        _end_seen(run, record, Ended(record.node_id, error, run.clock.now()))
    log.warning("no usable TPU: deleting what this attempt asked for")
    unborn = _unborn(run, record) if holds_lease and _says_never_ready(error) else None
    if clean_up(run, record, error, unborn):
        error.consequence = error.consequence or BEING_DELETED


def close_lost(run: RunContext, record: RunRecord, ended: Ended) -> None:
    """End a lost incarnation when its loss was seen: a wait before the next try costs nothing.

    What is still there after it was given up (a silent host) is deleted, which ends it.

    :param run: clients and stores.
    :param record: of the run, as this attempt knows it.
    :param ended: how it was lost.
    """
    error = ended.error
    _end_seen(run, record, ended)
    if isinstance(error, HostLost) and error.at is None and clean_up(run, record, error):
        error.consequence = error.consequence or BEING_DELETED


def _end_seen(run: RunContext, record: RunRecord, ended: Ended) -> None:
    """Close the record of an incarnation whose end the API has shown.

    One that a person deletes is only noted: the delete may fail, and the TPU be charged again.
    """
    error, reason = ended.error, reason_of_error(ended.error)
    if not isinstance(error, TPULost) or error.at is None:
        return
    # The attempt may have been started after this try had read the record.
    known = run.stores.runs.find(record.key) or record
    lost = lost_since(known, ended, newest_checkpoint(run, known.current))
    end = IncarnationEnd(ended.node_id, error.at, reason, TimeSource.OBSERVED, lost)
    if not isinstance(error, TPUVanished):
        known = known.with_life(ended.node_id, cause=reason)
        close_ended(run.stores.ledger, known, record.key, [end])
        error.consequence = error.consequence or LOST
    else:
        note_ends(run.stores.runs, run.stores.ledger, record.key, [end])


def _says_never_ready(error: TPUError) -> bool:
    """Whether the API has refused or failed a create: such a TPU was never charged."""
    return isinstance(error, CloudError) and not isinstance(error, TPULost | CreateUnanswered)


def _unborn(run: RunContext, record: RunRecord) -> IncarnationEnd | None:
    """The end of the current incarnation if it never became READY, as far as we have seen: no later look can tell."""
    if not record.incarnation or record.life(record.node_id).ready_at is not None:
        return None
    return IncarnationEnd(record.node_id, run.clock.now(), EndReason.NEVER_READY, TimeSource.API)


def clean_up(run: RunContext, record: RunRecord, error: TPUError, known: IncarnationEnd | None = None) -> bool:
    """Delete what this attempt has made; False if a list failed, which leaves it to the teardown.

    :param run: clients and stores.
    :param record: of the run, as this attempt knows it.
    :param error: why its TPU is given up.
    :param known: an end that no delete tells.
    """
    try:
        abandon(run, record.lease.token, known=known, cause=cause_of(error))
    except TPUError as problem:
        log.warning("could not list TPUs; the task delete will: %s", problem)
        return False
    return True


def end_overdue(grant: GrantContext, key: RunKey) -> str:
    """Delete what a DAG run still holds after its own deadline, each session and mapped instance by its own lease.

    Where the leases cannot be read the expiry on the label of each TPU decides.

    :param grant: clients and stores.
    :param key: of any session of the DAG run.
    :return: what was done, in words.
    :raises TPUError: something could not be deleted; the rest was asked for.
    """
    try:
        found = grant.stores.runs.of_dag_run(key)
    except cloud_failures():
        log.exception("the leases of %s cannot be read: the expiry on the label of each TPU decides", key.run_id)
        return grant.clients.tpu.run(lambda client: _end_by_label(client, key, grant.clock.now()))
    said = [f"{PurePosixPath(name).stem} is left alone: {error}" for name, error in found.unknown.items()]
    failures: list[TPUError] = []
    for record in found.values:
        try:
            said.append(_end_session(grant, record))
        except TPUError as error:
            log.error("could not end %s, the reaper tries again: %s", record.key.name, error)
            failures.append(error)
    if failures:
        raise failures[0]
    return "; ".join(said) or f"{key.dag_id} {key.run_id} holds no lease: nothing to delete"


def _end_session(grant: GrantContext, record: RunRecord) -> str:
    stores, key = grant.stores, record.key
    if record.lease.expires_at > grant.clock.now():
        return f"{key.name} may run until {record.lease.expires_at}"
    log.warning("%s has passed its deadline %s: deleting its TPU", key.name, record.lease.expires_at)
    zones = named_zones(lambda: stores, key)
    done = grant.clients.tpu.run(lambda client: _delete_all(client, stores, record, zones))
    note_ends(stores.runs, stores.ledger, key, done.endings)
    done.check()
    return f"{key.name} has passed its deadline; deleting {', '.join(end.node_id for end in done.endings) or 'nothing'}"


async def _delete_all(client: TPUClient, stores: Stores, record: RunRecord, zones: set[str] | None) -> Release:
    snapshot = await look_again(client, await snapshot_for_run(client, zones), own_names(client, record))
    note_before(stores, record.key, snapshot)
    return await delete_seen(client, snapshot, record.key)


async def _end_by_label(client: TPUClient, key: RunKey, now: dt.datetime) -> str:
    """Delete what has expired of any session of a DAG run: each TPU by its own label, an older one with the newest."""
    mine = (await take_snapshot(client)).of_dag_run(key)
    expired = {one.run for one in select_expired(Airflows(key.airflow), (*mine.nodes, *mine.queued), None, now)}
    done = await delete_all(client, mine.of_runs(expired))
    done.check()
    deleted = ", ".join(end.node_id for end in done.endings)
    if not deleted:
        return "no TPU of the run has passed the expiry on its label"
    names = ", ".join(sorted({end.node_id.rpartition("-")[0] for end in done.endings}))
    return f"{names} has passed the expiry on its label; deleting {deleted}"
