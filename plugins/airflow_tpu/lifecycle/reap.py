# SPDX-License-Identifier: Apache-2.0
"""Delete what has outlived its run, then tidy ledger, reservations and leases: one round of the reaper, in its order.

Every store is read after what it is compared with: a record is there before its record, a record before its TPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.core.run.expiry import LeaseState
from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.errors import LedgerError
from airflow_tpu.lifecycle.ends.expired import Reaped, delete_expired, note, what_is_left, with_unlisted
from airflow_tpu.lifecycle.ends.forgotten import close_forgotten, forget_runs, release_forgotten
from airflow_tpu.lifecycle.ends.records import note_before
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.stores.runs import left_alone

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.lifecycle.run_context import GrantContext
    from airflow_tpu.stores.runs import RunStore
    from airflow_tpu.stores.store import Contents

RunState = Callable[[str, str], str | None]
"""State of a DAG run by its ids: empty when there is no such run, None when Airflow could not be asked."""


def reap(grant: GrantContext, run_state: RunState, airflow: str) -> Reaped:
    """One round: delete every TPU of this Airflow that has no right left, in all zones, and tidy what runs have left.

    :param grant: clients and stores.
    :param run_state: asks Airflow for the state of a DAG run.
    :param airflow: identity of this Airflow; what carries another one, or none, is reported and never touched.
    :raises LedgerError: grant or bucket could not be read; what has expired was deleted all the same.
    :raises TransientError: something could not be deleted, or a zone in which a run has something did not answer.
    """
    tpu = grant.clients.tpu
    snapshot = tpu.run(take_snapshot)
    try:
        stores = grant.stores
        opened = stores.ledger.open_contents()
        snapshot = tpu.run(lambda client: with_unlisted(client, snapshot, opened.values))
        reserved = stores.reservations.readable()
        listed = stores.runs.listed()
        states = states_of(listed, run_state, airflow)
        airflows = Airflows(airflow, stores.airflows.known(), stores.runs.root)
    except cloud_failures() as error:
        _reap_by_labels(grant, snapshot, airflow, error)
    keys = {record.key.digest: record.key for record in listed.values}

    def announced(deleted: ProjectSnapshot) -> None:
        """A round that dies between a delete and its note must not leave a TPU that has vanished."""
        for key in (keys[run] for run in deleted.runs if run in keys):
            note_before(stores, key, deleted)

    done = tpu.run(lambda client: delete_expired(client, snapshot, states, airflows, announced))
    done.unknown = [*opened.unknown, *listed.unknown]
    done.awaited = frozenset(event.zone for event in opened.values)
    note(stores, done)
    left = tpu.run(lambda client: what_is_left(client, snapshot, done))
    done.closed = close_forgotten(stores, states, left, opened.values, done.endings)
    done.released = release_forgotten(stores.reservations, reserved.of_airflow(airflow), states, left)
    forget_runs(stores.runs, states, left, opened.values)
    done.tell()
    return done


def _reap_by_labels(grant: GrantContext, snapshot: ProjectSnapshot, airflow: str, error: Exception) -> NoReturn:
    done = grant.clients.tpu.run(lambda client: delete_expired(client, snapshot, None, Airflows(airflow)))
    done.tell()
    raise LedgerError(
        f"{len(done.deleted)} TPU(s) were deleted because the expiry on their label is over; the others were left "
        f"alone, since the leases that say whether a run still holds them cannot be read: {error}"
    ) from error


def lease_states(runs: RunStore, run_state: RunState, airflow: str) -> dict[str, LeaseState]:
    """Every lease of the bucket with the state of its DAG run (:func:`states_of`)."""
    return states_of(runs.listed(), run_state, airflow)


def states_of(listed: Contents[RunRecord], run_state: RunState, airflow: str) -> dict[str, LeaseState]:
    """Leases with the states of their DAG runs; a run whose record cannot be read is left alone.

    :param listed: every run record of the bucket.
    :param run_state: asks Airflow for the state of a DAG run.
    :param airflow: identity of this Airflow: it knows nothing of another one's runs, not even that they are over.
    """
    found = left_alone(listed.unknown)
    for record in listed.values:
        is_ours = record.key.airflow == airflow
        state = run_state(record.key.dag_id, record.key.run_id) if is_ours else None
        digest, lease = record.key.digest, record.lease
        found[digest] = LeaseState(digest, lease.expires_at, state, lease.token, is_ours)
    return found
