"""Take a run's lease and its chips: nothing is asked for, so a run that is refused leaves nothing behind."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_tpu.errors import GrantError
from airflow_tpu.lifecycle.project_snapshot import take_snapshot

if TYPE_CHECKING:
    from airflow_tpu.core.grant.alternatives import Alternative
    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.run.run_record import Holder, RunRecord
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)


def take_lease(run: RunContext, holder: Holder) -> RunRecord:
    """Write the lease, with a new token that fences older attempts off, then reserve the chips.

    :param run: clients and stores.
    :param holder: the DAG run that takes it.
    :raises LeaseHeld: a DAG run of the same ids in another Airflow that shares the bucket has it.
    :raises GrantError: the grant has no room; a run that never asked for a TPU gives the lease back.
    """
    # Whatever can fail without a trace comes before the lease.
    order, now = run.request.order(), run.clock.now()
    snapshot = run.clients.tpu.run(take_snapshot)
    deadline = run.request.deadline(holder.started_at or now)
    record = run.stores.runs.acquire(run.key, run.conf.zone, deadline, holder)
    log.info("lease of %s until %s: %s", record.key.name, record.lease.expires_at, run.stores.runs.uri(run.key))
    try:
        if record.choice is None:
            permit = order.reserve(run.stores.reservations, snapshot, record, now)
        else:
            permit = _reserve_again(run, snapshot, record)
        log.info("taken from the grant: %s", permit)
    except GrantError:
        if record.incarnation == 0:  # no TPU was ever asked for under this lease, so nothing depends on it
            run.stores.runs.release(run.key)
        raise
    return record


def _reserve_again(run: RunContext, snapshot: ProjectSnapshot, record: RunRecord) -> Permit:
    """Reserve for a run that has searched before: what it asked for last, or else the first of its choices with room.

    What a search has come to may have been taken by other runs by the time a person clears this one.

    :raises GrantError: none has room; the message is about the form's.
    """
    now, refused, request = run.clock.now(), list[GrantError](), run.request
    again = [] if snapshot.living(record.key) is not None else [_anew(record, choice) for choice in request.choices]
    for wanted in (record, *again):
        try:
            permit = request.order(wanted).reserve(run.stores.reservations, snapshot, wanted, now)
        except GrantError as error:
            log.warning("no room for %s, trying the next choice: %s", request.choice(wanted), error)
            refused.append(error)
            continue
        if wanted is not record:
            run.stores.runs.update(record, partial(_anew, choice=request.choice(wanted)))
            log.warning("the capacity search begins anew, with %s", request.choice(wanted))
        return permit
    raise refused[min(1, len(again))]


def _anew(record: RunRecord, choice: Alternative) -> RunRecord:
    return replace(record, choice=choice, hunt=None)
