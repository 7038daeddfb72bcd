# SPDX-License-Identifier: Apache-2.0
"""End a run: save, delete, wait until nothing is left, close the ledger, give chips and lease back. In this order."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.clients.log_groups import log_group
from airflow_tpu.consequences import DELETED, stated
from airflow_tpu.core.ledger.events import Closed
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import ConfigError, LeaseLost, LedgerError
from airflow_tpu.lifecycle.ends.deletion import Release, delete_seen
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd, noted, noted_ends, reason_of, settled
from airflow_tpu.lifecycle.ends.records import close_incarnations, note_before
from airflow_tpu.lifecycle.project_snapshot import look_again, named_zones, names_held, names_of, snapshot_for_run
from airflow_tpu.lifecycle.training.collect import save_rest
from airflow_tpu.lifecycle.training.losses import with_lost_work
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.polling import PollPolicy, within

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.lifecycle.run_context import RunContext
    from airflow_tpu.lifecycle.waits.polling import Waiting

log = logging.getLogger(__name__)

GONE_WITHIN = dt.timedelta(minutes=30)
"""A node may stay DELETING for long; after this the task's own retries, then the reaper, take over."""


@dataclass(frozen=True)
class StillThere:
    """What a worker leaves to a trigger: deletes are asked for, and something is not gone yet.

    :param since: when they were.
    :param until: when the wait is given up.
    :param names: what may be there although no list shows it.
    :param zones: those that have to answer; None: all.
    """

    since: dt.datetime
    until: dt.datetime
    names: list[ResourceName]
    zones: set[str] | None


def teardown(run: RunContext, waiting: Waiting) -> list[Closed] | StillThere:
    """Save what no task has copied, delete everything of a run, wait until it is gone, then :func:`finish`.

    It needs no permit, and no grant before everything is gone. A TPU that is gone already is a success.

    :param run: clients and stores.
    :param waiting: how long this worker waits.
    :return: how each incarnation ended, or what is still there.
    :raises TPUError: something could not be deleted; the rest was asked for.
    """
    until = run.clock.now() + GONE_WITHIN
    _save(run)
    zones = named_zones(lambda: run.stores, run.key)
    names = _recorded(run)
    with log_group(log, "Ask for the delete"):
        asked = run.clients.tpu.run(lambda client: _ask(client, run, zones, names))
    _note(run, asked.endings)
    asked.check()
    # A create that was on its way meanwhile has written its record before its call.
    names, since = sorted({*names, *_recorded(run)}), run.clock.now()
    policy = PollPolicy(waiting.inline_poll, until, since)

    async def gone(client: TPUClient) -> bool:
        await until_gone(client, run.key, policy, asked, names, zones)
        return True

    if not run.clients.tpu.run(lambda client: within(waiting.seconds(until, since), gone(client))):
        _note(run, asked.endings)
        return StillThere(since, until, names, zones)
    return finish(run, asked.endings)


@stated(DELETED)
def finish(run: RunContext, endings: list[IncarnationEnd]) -> list[Closed]:
    """Close the ledger, then give chips and lease back; only when nothing of the run is left in the project.

    Until the ledger is closed the lease keeps the names, lives and ends that it is closed with.

    :param run: clients and stores.
    :param endings: how what was alive has ended.
    :return: how each incarnation of the run ended.
    :raises LedgerError: the grant file cannot be read, so that ledger and lease stay open.
    :raises TransientError: a create was on its way meanwhile; what it brought is being deleted.
    """
    _require_grant(run)
    with log_group(log, "Close the ledger records"):
        _close(run, endings)
    ended = [event for event in run.stores.ledger.events(run.key) if isinstance(event, Closed)]
    with log_group(log, "Give chips and lease back"):
        run.stores.reservations.release(run.key.digest)
        run.stores.runs.release(run.key)
    log.info("nothing of %s is left in the project", run.key.name)
    return ended


def _save(run: RunContext) -> None:
    """Save what no task has copied. No delete depends on that: what cannot be saved is lost with the TPU."""
    try:
        save_rest(run)
    except cloud_failures() as error:
        log.warning("deleting the TPU although what no task has copied could not be saved: %s", error)


def _announce(run: RunContext, snapshot: ProjectSnapshot) -> RunRecord | None:
    try:
        stores = run.stores
    except ConfigError as error:
        log.warning("deleting the TPU although the place of its lease is unknown: %s", error)
        return None
    return note_before(stores, run.key, snapshot)


async def _ask(
    client: TPUClient, run: RunContext, zones: set[str] | None, names: Iterable[ResourceName] = ()
) -> Release:
    snapshot = await look_again(client, await snapshot_for_run(client, zones), names)
    record = _announce(run, snapshot)
    asked = await delete_seen(client, snapshot, run.key)
    for ending in asked.endings:
        reason = reason_of(record.life(ending.node_id), ending.reason) if record is not None else ending.reason
        log.info("deleting %s (%s)", ending.node_id, reason)
    return asked


def _note(run: RunContext, endings: list[IncarnationEnd]) -> None:
    """Note the ends before the wait: a try that is ended meanwhile must not lose when the TPU ended."""
    try:
        run.stores.runs.update(run.stores.runs.read(run.key), lambda now: noted(now, endings))
    except ConfigError as error:  # finish raises it once nothing is billed any more
        log.error("the ledger of %s stays open until the TPU is gone and the grant is mended: %s", run.key.name, error)
    except LeaseLost as error:  # an earlier try of this teardown has finished
        log.info("no end is noted, an earlier try has given the lease back: %s", error)


def _recorded(run: RunContext) -> list[ResourceName]:
    """What ledger and lease name: a list may be too old to show it. No delete depends on either."""
    found = set[ResourceName]()
    try:
        found |= names_of(run.stores.ledger.open_records(run.key))
    except cloud_failures() as error:
        log.warning("the ledger cannot be read, so what it names is looked for in the lists alone: %s", error)
    try:
        record = run.stores.runs.find(run.key)
        found |= names_held(run.clients.tpu.endpoint.project_id, record) if record is not None else set()
    except cloud_failures() as error:
        log.warning("the lease cannot be read, so what it names is looked for in the lists alone: %s", error)
    return sorted(found)


def _close(run: RunContext, endings: list[IncarnationEnd]) -> None:
    record = run.stores.runs.find(run.key)
    record = with_lost_work(run, record) if record is not None else None
    unseen = close_incarnations(run.stores.ledger, record, run.key, settled(noted_ends(record), endings))
    if unseen:  # no list had them, but they may have come since: of two that look, the second sees the other
        zones = {event.zone for event in unseen}
        run.clients.tpu.run(lambda client: _ask(client, run, zones, names_of(unseen))).check_none()


def _require_grant(run: RunContext) -> None:
    try:
        _ = run.grant
    except ConfigError as error:
        raise LedgerError(
            f"the ledger records and the lease of {run.key.name} are still open, for the grant says where they are: "
            f"{error}\nMend the grant, then clear this task; the reaper closes them as well"
        ) from error
