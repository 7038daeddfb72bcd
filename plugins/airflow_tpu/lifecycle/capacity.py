# SPDX-License-Identifier: Apache-2.0
"""What to do without capacity, or while our own runs use the grant's rows: ask for another row, or wait."""

from __future__ import annotations

import datetime as dt
import logging
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_tpu import settings
from airflow_tpu.core import json_form
from airflow_tpu.core.grant.alternatives import Alternative, CapacitySearch
from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.tpu.readiness import Wait
from airflow_tpu.errors import (
    AccessDenied,
    CreateRefused,
    CreateUnanswered,
    GrantViolation,
    NotOffered,
    QuotaExceeded,
    QuotaZero,
    RowInUse,
    StockOut,
    TPUError,
)
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.waits.room import LONGEST_PAUSE, room_for

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)

FIRST_PAUSE = 20
"""How many times longer than the usual delay the pause after the first round is: five minutes."""

# In another place than the form names these only mean that there is no capacity.
_NOT_THERE = (
    GrantViolation,
    RowInUse,
    NotOffered,
    AccessDenied,
    QuotaZero,
    QuotaExceeded,
    CreateRefused,
    CreateUnanswered,
)


@dataclass(frozen=True)
class Step:
    """What a run does after a create was refused.

    :param alternative: what it asks for next.
    :param capacity_search: the search so far.
    :param why: for the log.
    :param resume_at: when it asks, None for at once.
    :param what: what a wait is for.
    :param around: digests of the runs that end only after this one.
    """

    alternative: Alternative
    capacity_search: CapacitySearch
    why: str
    resume_at: dt.datetime | None = None
    what: str = ""
    around: tuple[str, ...] = ()

    def change(self, record: RunRecord) -> RunRecord:
        """Write it down, so that every later task, try and process asks for the same."""
        return replace(
            record, alternative=self.alternative, capacity_search=self.capacity_search, refusals=0, unanswered=0
        )

    def search_json(self) -> dict[str, Any]:
        """What the trigger goes by: for what, since when, next check, and the rows in use whose room ends the wait."""
        at = self.resume_at.timestamp() if self.resume_at is not None else 0.0
        return {
            "what": self.what,
            "since": self.capacity_search.since.timestamp(),
            "resume_at": at,
            "rooms": json_form.to_json(self.capacity_search.in_use),
            "around": list(self.around),
        }


def next_step(run: RunContext, record: RunRecord, error: TPUError) -> Step | None:
    """What comes after an error of a create; None if it is not for lack of capacity.

    :param run: clients and stores.
    :param record: of the run, as this attempt knows it.
    :param error: why there is no TPU.
    """
    refused = run.request.alternative(record)
    waiting = record.capacity_search is not None
    searching = waiting and len(run.request.alternatives) > 1
    # Who waits already, because an older TPU has taken the row, waits until that one is gone.
    is_full = waiting and isinstance(error, GrantViolation)
    in_use = isinstance(error, RowInUse)
    if not isinstance(error, StockOut | RowInUse) and not is_full and not (searching and isinstance(error, _NOT_THERE)):
        return None
    now = run.stores.runs.clock.now()
    others = run.request.alternatives
    search, alternative, wait = (record.capacity_search or CapacitySearch(now)).after(refused, others, in_use)
    if not wait:
        why = f"no {'room' if in_use else 'capacity'} for {refused}; requesting {alternative} next"
        return Step(alternative, search, f"{why}, which the grant has in the region of the data as well")
    until = first_of(record.lease.expires_at, run.request.closes(record))
    pause = dt.timedelta(seconds=search.pause(settings.retry_seconds() * FIRST_PAUSE))
    # Where nothing but room is missing, the trigger sees it come.
    resume_at = until if set(search.in_use) >= set(others) else min(now + pause, until)
    what = room_for(search.in_use, error) if search.in_use else f"capacity for {alternative}"
    next_check = min((resume_at - now).total_seconds(), LONGEST_PAUSE if search.in_use else math.inf)
    waited = Wait(search.since, until).line(what, now, next_check)
    return Step(alternative, search, waited, resume_at, what, record.lease.around)


def explained(run: RunContext, error: TPUError) -> TPUError:
    """The error; one of a full quota also names the dead things that hold it."""
    if not isinstance(error, QuotaExceeded):
        return error
    try:
        snapshot = run.clients.tpu.run(take_snapshot)
    except TPUError as problem:
        log.warning("could not list what holds the quota, raising the error without it: %s", problem)
        return error
    more = f"{error.message} {terminated_nodes(snapshot, run.key.digest)}"
    return QuotaExceeded(more, error.reason, consequence=error.consequence)


def terminated_nodes(snapshot: ProjectSnapshot, owner: str) -> str:
    """Terminated nodes and failed requests, which hold quota until they are deleted, in words.

    :param owner: digest of the run that asks.
    """
    dead = [item for item in snapshot.inventory().items if not item.alive]
    if not dead:
        return "Nothing in the project is dead and undeleted: what holds the quota is alive."
    whose = {owner: "this run's, deleted by its next try", None: "not of this package: delete it by hand"}
    named = (
        f"{item.name} ({whose.get(item.owner, 'of another run: the reaper of its Airflow deletes it')})"
        for item in dead
    )
    return f"Dead, and holding quota until they are deleted: {'; '.join(named)}."
