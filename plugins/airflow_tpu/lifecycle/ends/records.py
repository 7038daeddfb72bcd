# SPDX-License-Identifier: Apache-2.0
"""Note how incarnations end, and close their ledger records once the API no longer knows them.

The process that asks for the delete does not have to be the one that sees the TPU gone: the end is noted in the lease,
and the next try, the teardown or the reaper, whichever comes first after it, writes it to the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.lifecycle.ends.end_reasons import endings_of
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd, caused, closing, noted

if TYPE_CHECKING:
    import datetime as dt

    from airflow_tpu.core.ledger.events import Closed, Opened
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.stores.grant_stores import Stores
    from airflow_tpu.stores.ledger import LedgerStore
    from airflow_tpu.stores.runs import RunStore


log = logging.getLogger(__name__)


def note_before(
    stores: Stores, key: RunKey, snapshot: ProjectSnapshot, token: str = "", cause: EndReason | None = None
) -> RunRecord | None:
    """Note what a snapshot has of a run before it is deleted: no later look finds how a terminated node has ended.

    :param stores: where lease and ledger are; no delete depends on them.
    :param key: the run.
    :param snapshot: what is deleted, of this run or of more.
    :param token: see :func:`announce`.
    :param cause: see :func:`announce`.
    :return: the record with the notes, None if there is none or it cannot be written.
    """
    everything = snapshot.all_ours(key)
    ended = {item.name.id for item in everything if item.phase in (Phase.LOST, Phase.FAILED)}
    seen = endings_of(snapshot.of_runs({key.digest}), {}, stores.runs.clock.now())
    over = [end for end in seen if end.node_id in ended and end.reason in (EndReason.PREEMPTED, EndReason.NEVER_READY)]
    # A node goes along with its request, whose delete somebody else has begun.
    going = {item.name.id for item in everything if item.phase is Phase.DELETING}
    alive = {item.name.id for item in everything if item.phase not in (Phase.LOST, Phase.FAILED)} - going
    try:
        note_ends(stores.runs, stores.ledger, key, over)
    except cloud_failures() as error:
        log.warning("deleting the TPU of %s although its end cannot be noted: %s", key.name, error)
    return announce(stores.runs, key, alive, token, cause)


def announce(
    leases: RunStore, key: RunKey, node_ids: Collection[str], token: str = "", cause: EndReason | None = None
) -> RunRecord | None:
    """Note what is deleted before it is: the process may die between the delete and the note of the end.

    A script that is still running there is cut off: its TPU has not finished.

    :param leases: where the record is kept; no delete depends on it.
    :param key: the run.
    :param node_ids: its incarnations that are deleted.
    :param token: of the attempt that deletes them. A newer attempt that holds the lease by now has another opinion, and
        nothing is noted. Empty where every attempt's TPU is deleted.
    :param cause: why they end, whatever was on them; None where only what runs there decides.
    :return: the record with the note, None if there is none or it cannot be written.
    """

    def begun(record: RunRecord) -> RunRecord:
        if token and record.lease.token != token:
            return record
        for node_id in {*node_ids} & {record.node_id, *record.lives}:
            record = _caused(record, node_id, cause, leases.clock.now()).with_life(node_id, deleting=True)
        return record

    try:
        return leases.amend(key, begun)
    except cloud_failures() as error:
        log.warning("deleting the TPU of %s although the lease cannot be written: %s", key.name, error)
    return None


def _caused(record: RunRecord, node_id: str, cause: EndReason | None, now: dt.datetime) -> RunRecord:
    """The record with the cause of a delete of ours, unless what ended the run there is known already."""
    life, cut_off = record.life(node_id), None
    if cause is EndReason.STOPPED or (cause is None and life.began_at is not None):
        cut_off = EndReason.DELETED if record.lease.expires_at <= now else EndReason.STOPPED
    return record.with_life(node_id, cause=life.cause or cut_off or cause)


def note_ends(
    leases: RunStore,
    ledger: LedgerStore,
    key: RunKey,
    endings: list[IncarnationEnd],
    cause: EndReason | None = None,
) -> None:
    """Note in the lease how incarnations end if their deletes take effect; who sees them gone writes it to the ledger.

    Without a lease it could not be found out later, so then it is written at once.

    :param leases: where the record is kept.
    :param ledger: where incarnations are recorded.
    :param key: the run.
    :param endings: what the deletes brought.
    :param cause: why they were deleted, where the lease could not be told so before; None if it was told.
    """

    def told(record: RunRecord) -> RunRecord:
        for end in endings if cause is not None else ():
            record = _caused(record, end.node_id, cause, leases.clock.now())
        return noted(record, endings)

    if endings and leases.amend(key, told) is None:
        close_ended(ledger, None, key, [caused(end, cause) for end in endings])


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
