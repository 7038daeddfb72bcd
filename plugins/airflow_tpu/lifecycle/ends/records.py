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
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd, closing, noted

if TYPE_CHECKING:
    from airflow_tpu.core.ledger.events import Closed, Opened
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.stores.ledger import LedgerStore
    from airflow_tpu.stores.runs import RunStore


log = logging.getLogger(__name__)


def announce(leases: RunStore, key: RunKey, node_ids: Collection[str], killed: str = "") -> RunRecord | None:
    """Note what is deleted before it is: the process may die between the delete and the note of the end.

    A script that is still running there is cut off: its TPU has not finished.

    :param leases: where the record is kept; no delete depends on it.
    :param key: the run.
    :param node_ids: its incarnations that are deleted.
    :param killed: token of an attempt that is ended from outside: its TPU ends for that, whatever was on it. A newer
        attempt that holds the lease by now has another opinion, and nothing is noted.
    :return: the record with the note, None if there is none or it cannot be written.
    """

    def begun(record: RunRecord) -> RunRecord:
        if killed and record.lease.token != killed:
            return record
        is_overdue = record.lease.expires_at <= leases.clock.now()
        cut_off = EndReason.DELETED if is_overdue else EndReason.STOPPED
        for node_id in {*node_ids} & {record.node_id, *record.lives}:
            life = record.life(node_id)
            is_cut_off = bool(killed) or life.began_at is not None
            record = record.with_life(node_id, deleting=True, cause=life.cause or (cut_off if is_cut_off else None))
        return record

    try:
        return leases.amend(key, begun)
    except cloud_failures() as error:
        log.warning("deleting the TPU of %s although the lease cannot be written: %s", key.name, error)
    return None


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
