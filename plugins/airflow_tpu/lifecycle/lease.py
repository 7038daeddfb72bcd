# SPDX-License-Identifier: Apache-2.0
"""Ask the grant about a run, then take its lease and its chips: a run that is refused here leaves nothing behind."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.form_reasons import with_grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.grant.project_identity import identity_warnings
from airflow_tpu.errors import ConfigError, GrantError, RowInUse
from airflow_tpu.lifecycle.preflight.rights import check_rights
from airflow_tpu.lifecycle.preflight.storage import check_storage, config_uris
from airflow_tpu.lifecycle.project_snapshot import answered_snapshot
from airflow_tpu.lifecycle.sharing.identity import introduce
from airflow_tpu.lifecycle.training.launch import build_bundle

if TYPE_CHECKING:
    from airflow_tpu.core.grant.alternatives import Alternative
    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.run.run_record import Holder, RunRecord
    from airflow_tpu.core.source.bundle import Bundle
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)


def take_lease(run: RunContext, holder: Holder) -> RunRecord:
    """Write the lease, with a new token that fences older attempts off, then reserve the chips.

    Where other runs of this Airflow use the rows the lease is taken without chips: who has the lease waits for room.

    :param run: clients and stores.
    :param holder: the DAG run that takes it.
    :raises LeaseHeld: another DAG run of the same ids has it.
    :raises GrantError: the grant has no room; a run that never asked for a TPU gives the lease back.
    """
    # Whatever can fail without a trace comes before the lease.
    order, now = run.request.order(), run.clock.now()
    snapshot = run.clients.tpu.run(lambda client: answered_snapshot(client, order.spec.zone))
    deadline = run.request.deadline(holder.started_at or now)
    commit = run.project_version
    introduce(run, run.key.airflow)
    record = run.stores.runs.acquire(run.key, run.conf.zone, deadline, holder, commit)
    log.info("lease of %s until %s: %s", record.key.name, record.lease.expires_at, run.stores.runs.uri(run.key))
    if run.from_grant != record.from_grant:
        record = run.stores.runs.update(record, lambda now: replace(now, from_grant=run.from_grant))
    try:
        if record.alternative is None:
            permit = order.reserve(run.stores.reservations, snapshot, record, now)
        else:
            permit = _reserve_again(run, snapshot, record)
        log.info("taken from the grant: %s", permit)
    except RowInUse as error:
        log.warning("no room yet, the task create waits for it: %s", "; ".join(map(str, error.faults)))
    except GrantError:
        if record.incarnation == 0:  # no TPU was ever asked for under this lease, so nothing depends on it
            run.stores.runs.release(run.key)
        raise
    return record


def _reserve_again(run: RunContext, snapshot: ProjectSnapshot, record: RunRecord) -> Permit:
    """Reserve for a run that has searched before: what it asked for last, or its first alternative with room.

    What a search has come to may have been taken by other runs by the time a person clears this one.

    :raises RowInUse: none has room, and of one of them only because of other runs of this Airflow.
    :raises GrantError: none has room; the message is about the form's.
    """
    now, refused, request = run.clock.now(), list[GrantError](), run.request
    others = () if snapshot.living(record.key) is not None else request.alternatives
    again = [_anew(record, alternative) for alternative in others]
    for wanted in (record, *again):
        try:
            permit = request.order(wanted).reserve(run.stores.reservations, snapshot, wanted, now)
        except GrantError as error:
            log.warning("no room for %s, trying the next alternative: %s", request.alternative(wanted), error)
            refused.append(error)
            continue
        if wanted is not record:
            run.stores.runs.update(record, partial(_anew, alternative=request.alternative(wanted)))
            log.warning("the capacity search begins anew, with %s", request.alternative(wanted))
        return permit
    raise next((error for error in refused if isinstance(error, RowInUse)), refused[min(1, len(again))])


def _anew(record: RunRecord, alternative: Alternative) -> RunRecord:
    return replace(record, alternative=alternative, capacity_search=None)


def check_grant(run: RunContext) -> Permit:
    """Refuse with every reason, or describe what covers the run.

    :param run: the run; a wrong form is refused with the grant's reasons too.
    :raises ConfigError: the form is wrong.
    :raises RowInUse: the run will wait until other runs of this Airflow have ended.
    :raises AccessDenied: the account of the connection lacks a right that the run will need.
    :raises GrantError: the grant does not cover the run.
    :raises TransientError: the zone did not answer, also when it was asked again.
    """
    end = _end(run, run.clock.now())
    named = config_uris(run, _check_alone(run, end))
    check_storage(run, named)
    for line in _identity_warnings(run):
        log.warning("%s", line)
    check_rights(run)
    order = run.request.order(more=named)
    reserved = run.stores.reservations.read()
    snapshot = run.clients.tpu.run(lambda client: answered_snapshot(client, order.spec.zone))
    return authorize(run.grant, order.request(run.key, end), snapshot.inventory(), run.clock.now(), reserved)


def _end(run: RunContext, now: dt.datetime) -> dt.datetime:
    try:
        return run.request.deadline(now)
    except ConfigError as error:
        raise with_grant(error, run.asked, run.offers, run.grant, now) from error


def _check_alone(run: RunContext, end: dt.datetime) -> Bundle:
    """Refuse what script, form and grant file alone refuse, before any call of the TPU API; return what travels."""
    _ = run.secrets
    bundle = build_bundle(run)
    spec, consent = run.request.spec, run.conf.allow_paid_reason
    price = run.catalogue.price(spec.accelerator_type, spec.zone, spec.tier)
    request = Request(spec, run.request.accelerator, end, paid_reason=consent, price=price)
    authorize(run.grant, request, Inventory(), run.clock.now())
    return bundle


def _identity_warnings(run: RunContext) -> list[str]:
    credentials = run.clients.tpu.endpoint.credentials
    projects = (getattr(credentials, name, None) for name in ("project_id", "quota_project_id"))
    return identity_warnings(run.grant.project_id, *projects)
