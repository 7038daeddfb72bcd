# SPDX-License-Identifier: Apache-2.0
"""Make sure that a run has a TPU which can be logged in to; where only capacity is missing, search for it."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.log_groups import log_group
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.ledger.events import TimeSource
from airflow_tpu.errors import (
    BudgetExhausted,
    ConfigError,
    DeadlineExceeded,
    GrantViolation,
    HostLost,
    LeaseLost,
    LedgerError,
    LoginRefused,
    RateLimited,
    RowTaken,
    TPUError,
    TransientError,
    WindowClosed,
)
from airflow_tpu.lifecycle.capacity import Step, explained, next_step
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.creating.refusals import failure_counted
from airflow_tpu.lifecycle.ends.end_reasons import reason_of_error
from airflow_tpu.lifecycle.release import give_back
from airflow_tpu.lifecycle.sharing.room import require_row
from airflow_tpu.lifecycle.waits.polling import PollPolicy, UnhealthySince, Waiting, within
from airflow_tpu.lifecycle.waits.reachability import arrive

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.lifecycle.run_context import RunContext
    from airflow_tpu.lifecycle.waits.ready import Arrival
    from airflow_tpu.lifecycle.waits.target import Target

log = logging.getLogger(__name__)

_SAYS_NOTHING = (ConfigError, LedgerError, RateLimited, TransientError)
"""Errors that say nothing of the TPU: it may be well, and the run may be training on it. The next try looks again."""


@dataclass(frozen=True)
class Ready:
    """A TPU that can be logged in to.

    :param record: this attempt's lease, with the instant of READY in it.
    :param node: the TPU.
    """

    record: RunRecord
    node: ResourceName


@dataclass(frozen=True)
class ReadySince:
    """What a worker or a trigger has seen of a TPU that is ready.

    :param node: the TPU.
    :param at: since when it is READY.
    :param source: whose clock that is.
    :param host_keys: SSH host key of each worker.
    """

    node: ResourceName
    at: dt.datetime
    source: TimeSource
    host_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class OnItsWay:
    """A TPU that is asked for and not ready yet: a trigger waits for it.

    :param target: what was asked for.
    :param since: when the wait began.
    :param unhealthy: since when the node is there and not healthy.
    """

    target: Target
    since: dt.datetime
    unhealthy: UnhealthySince


def ensure_tpu(run: RunContext, record: RunRecord, waiting: Waiting) -> Ready | OnItsWay | Step:
    """Adopt or create the TPU of a lease, and wait for it as long as this worker may.

    :param run: clients and stores.
    :param record: of the run, as this attempt knows it.
    :param waiting: how long the worker waits.
    :return: the TPU, ready or on its way, or when to ask again for capacity.
    :raises GrantError: the grant does not cover it.
    :raises WindowClosed: the run no longer wants a first TPU; nothing of it is left.
    :raises TPUError: there is no TPU; what this attempt made is given back.
    """
    _require_time(run, record)
    try:
        found = _provide(run, record, waiting)
        if isinstance(found, OnItsWay):
            return found
        return arrived(run, record, ReadySince(found.view.name, found.ready_at, found.source, found.host_keys))
    except TPUError as error:
        return recover(run, record, error, waiting)


def arrived(run: RunContext, record: RunRecord, since: ReadySince) -> Ready:
    """Use a TPU that has just become READY, unless an older one has its place in the grant.

    Lists may be some seconds behind, so the look after the create may have missed that.

    :param run: clients and stores.
    :param record: as it was until now; a TPU that was READY in it has been looked at.
    :param since: the TPU, and since when it is READY.
    :raises RowTaken: an older TPU has the last of the row.
    """
    found, name = remember(run, record, since), since.node.id
    if record.life(name).ready_at is not None:
        return found
    record, wanted = found.record, run.request
    spec, kind = wanted.spec_of(wanted.alternative(record)), wanted.accelerator_of(record)
    key = run.key
    request = Request(spec, kind, record.lease.expires_at, owner=key.digest, airflow=key.airflow, names=wanted.names)
    free = [event for event in run.stores.ledger.open_records(run.key) if event.node_id == name and event.allowance]
    if free:  # what is billed anyway takes nothing from a row
        run.clients.tpu.run(lambda client: require_row(client, run.grant, request, record))
    return found


def _provide(run: RunContext, record: RunRecord, waiting: Waiting) -> Arrival | OnItsWay:
    closes = run.request.closes(record)
    if closes is not None and closes <= run.clock.now():
        raise WindowClosed(f"no TPU in time: the run wanted one by {closes}.")
    order, access = run.request.order(record), run.clients.access  # read before the event loop runs

    async def provided(client: TPUClient) -> Arrival | OnItsWay:
        with log_group(log, "Ask for the TPU"):
            target = await Provisioner(client, run.stores, order, record).ensure()
        since, unhealthy = run.clock.now(), UnhealthySince()
        policy = PollPolicy(waiting.inline_poll, record.lease.expires_at, since, closes)
        arriving = arrive(client, target, access, policy, unhealthy)
        found = await within(waiting.seconds(record.lease.expires_at, since), arriving)
        return found[0] if found is not None else OnItsWay(target, since, unhealthy)

    return run.clients.tpu.run(provided)


def recover(run: RunContext, record: RunRecord, error: TPUError, waiting: Waiting) -> Ready | OnItsWay | Step:
    """Continue after an error: give back what is left, then ask elsewhere or later where only capacity is missing.

    :raises TPUError: anything else ends the try.
    """
    try:
        record, holds_lease = run.stores.runs.confirm(record), True
    except LeaseLost:  # then only what carries the old token is given back, and what the record says is out of date
        holds_lease = False
    is_loss = isinstance(error, HostLost | LoginRefused)
    exhausted = _loss_counted(run, record, error) if is_loss and holds_lease else None
    if holds_lease and isinstance(error, TransientError) and error.refused:
        error = failure_counted(run.stores.runs, record, error)
    step = next_step(run, record, error)
    if not isinstance(error, _SAYS_NOTHING):
        give_back(run, record, error, holds_lease)
    if isinstance(error, WindowClosed):
        raise error
    if exhausted is not None:
        raise exhausted from error
    if is_loss and not holds_lease:
        run.stores.runs.confirm(record)
    if step is None or (step.resume_at is not None and not waiting.may_defer):
        raise explained(run, error)
    record = run.stores.runs.update(record, step.change)
    if step.resume_at is not None:
        if isinstance(error, RowTaken | GrantViolation):  # who holds the row is news; that there is no capacity is not
            log.warning("%s", error)
        log.info("%s", step.why)
        return step
    log.warning("%s: %s", step.why, error)
    return ensure_tpu(run, record, waiting)


def remember(run: RunContext, record: RunRecord, seen: ReadySince) -> Ready:
    """Write down since when a TPU is READY and which host keys it has; the capacity search has ended."""
    node, life = seen.node, record.life(seen.node.id)
    changes: dict[str, Any] = {"host_keys": seen.host_keys}
    if life.ready_at is None:
        log.info("%s has been READY since %s (%s)", node.id, seen.at, seen.source)
        changes.update(ready_at=seen.at, source=seen.source)
    elif life.host_keys == seen.host_keys:
        return Ready(record, node)
    record = run.stores.runs.update(
        record,
        lambda now: replace(
            now.with_life(node.id, **changes), zone=node.zone, capacity_search=None, refusals=0, unanswered=0
        ),
    )
    return Ready(record, node)


def _require_time(run: RunContext, record: RunRecord) -> None:
    if record.lease.expires_at <= run.clock.now():
        raise DeadlineExceeded(
            f"the deadline {record.lease.expires_at} of {record.key.name} has passed, so it asks for no TPU. Raise "
            "deadline_hours and start again: the run resumes from its newest checkpoint."
        )


def _loss_counted(run: RunContext, record: RunRecord, error: TPUError) -> BudgetExhausted | None:
    """Count a TPU that never got well, or never let us in: a loss like any other, but no attempt without progress.

    :return: the error of a run for which it was one too many.
    """
    more = run.stores.runs.update(
        record,
        lambda now: replace(
            now.with_life(now.node_id, cause=reason_of_error(error)),
            spent=replace(now.spent, losses=now.spent.losses + 1),
        ),
    )
    return more.spent.exhausted(error, run.conf.max_preemptions, newest="")
