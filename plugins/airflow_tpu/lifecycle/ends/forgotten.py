# SPDX-License-Identifier: Apache-2.0
"""Close, give back and forget what runs have left behind in the stores; for the reaper, after its deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from airflow_tpu.core.run.expiry import LeaseState, is_over
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.lifecycle.ends.incarnation_end import closing
from airflow_tpu.stores.runs import left_alone

if TYPE_CHECKING:
    import datetime as dt

    from airflow_tpu.core.grant.reservations import Reservations
    from airflow_tpu.core.ledger.events import Opened
    from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.stores.grant_stores import Stores
    from airflow_tpu.stores.reservations import ReservationStore
    from airflow_tpu.stores.runs import RunStore


def close_forgotten(
    stores: Stores,
    states: Mapping[str, LeaseState],
    snapshot: ProjectSnapshot,
    records: Iterable[Opened],
    endings: Iterable[IncarnationEnd] = (),
) -> list[str]:
    """Close every ledger record that is open without a TPU behind it.

    A record whose TPU still exists, or whose zone does not answer, is left to its own teardown, or to the next round.
    A TPU whose record is gone is closed by the round that has deleted it: the next one knows no more.

    :param states: read after the snapshot.
    :param snapshot: what is left (:func:`airflow_tpu.lifecycle.ends.expired.what_is_left`).
    :param records: the open records that were looked for by name.
    :param endings: of the TPUs that this round has deleted.
    """
    ended = {ending.node_id: ending for ending in endings}
    alive = {name.id for name in snapshot.names}
    listed = stores.runs.listed()  # read after the ledger: a run's record is there before its TPU's
    known, unknown = {record.key.digest: record for record in listed.values}, left_alone(listed.unknown)
    now, closed = stores.ledger.clock.now(), []
    for event in records:
        record = known.get(event.run)
        if (record is None and event.run in unknown) or _is_held_elsewhere(states.get(event.run), now):
            continue
        is_gone = event.node_id not in alive and not snapshot.is_silent(event.zone)
        is_gone = is_gone and not _may_be_coming(event, record, states.get(event.run), snapshot)
        if is_gone or (event.node_id in ended and (record is None or event.node_id not in alive)):
            stores.ledger.close(event, closing(event, record, ended.get(event.node_id), now))
            closed.append(event.node_id)
    return closed


def _is_held_elsewhere(state: LeaseState | None, now: dt.datetime) -> bool:
    """Whether a run of another Airflow has the right to the TPU: that one knows better how it ended."""
    return state is not None and not state.is_ours and state.expires_at > now


def _may_be_coming(
    event: Opened, record: RunRecord | None, state: LeaseState | None, snapshot: ProjectSnapshot
) -> bool:
    """Whether the snapshot may be too old to show this TPU: its record is written before it is asked for."""
    if record is None or event.node_id != record.node_id:
        return False
    taken_again = state is None or state.token != record.lease.token
    if not taken_again and is_over(state, snapshot.at or event.requested_at):
        return False
    ready_at = record.life(event.node_id).ready_at
    return ready_at is None or snapshot.at is None or ready_at >= snapshot.at


def release_forgotten(
    store: ReservationStore, reserved: Reservations, leases: Mapping[str, LeaseState], snapshot: ProjectSnapshot
) -> list[str]:
    """Give back what runs without a right or without an end have reserved; what has a TPU waits for its delete.

    :param reserved: by runs of this Airflow, read *before* the leases: a record is taken before its reservation.
    :return: names of the runs.
    """
    now, living = store.clock.now(), snapshot.runs
    gone = [
        entry
        for entry in reserved.all
        if entry.owner not in living and not snapshot.is_silent(entry.zone) and is_over(leases.get(entry.owner), now)
    ]
    if gone:
        store.drop(gone)
    return [entry.run for entry in gone]


def forget_runs(
    runs: RunStore, found: Mapping[str, LeaseState], snapshot: ProjectSnapshot, opened: Iterable[Opened] = ()
) -> list[str]:
    """Remove the leases of DAG runs that are over and have no TPU left; a run that is cleared takes a new one.

    :param found: read before this, with the token of that moment: a lease taken again since stays.
    :param opened: records that were open: one in a zone that does not answer is still to be closed with the lease.
    :return: names of the runs.
    """
    living = snapshot.runs | {event.run for event in opened if snapshot.is_silent(event.zone)}
    over = {digest: state.token for digest, state in found.items() if state.run_is_over and digest not in living}
    mine = [record for record in runs.all() if record.key.digest in over and not snapshot.is_silent(record.zone)]
    return [record.key.name for record in mine if runs.forget(record.key, over[record.key.digest])]
