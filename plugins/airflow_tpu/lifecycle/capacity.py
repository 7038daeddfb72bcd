"""What to do when there is no capacity: ask for another row of the grant, or wait; and who holds a full quota."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_tpu import settings
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
    StockOut,
    TPUError,
)
from airflow_tpu.lifecycle.project_snapshot import take_snapshot

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)

FIRST_PAUSE = 20
"""How many times longer than the usual delay the pause after the first round is: five minutes."""

# In another place than the form names these only mean that there is no capacity.
_NOT_THERE = (GrantViolation, NotOffered, AccessDenied, QuotaZero, QuotaExceeded, CreateRefused, CreateUnanswered)


@dataclass(frozen=True)
class Step:
    """What a run does after a create was refused.

    :param alternative: what it asks for next.
    :param capacity_search: the search so far.
    :param why: for the log.
    :param resume_at: when it asks, None for at once.
    """

    alternative: Alternative
    capacity_search: CapacitySearch
    why: str
    resume_at: dt.datetime | None = None

    def change(self, record: RunRecord) -> RunRecord:
        """Write it down, so that every later task, try and process asks for the same."""
        return replace(
            record, alternative=self.alternative, capacity_search=self.capacity_search, refusals=0, unanswered=0
        )

    def search_json(self) -> dict[str, Any]:
        """What the trigger tells a person: for what, since when, next check."""
        at = self.resume_at.timestamp() if self.resume_at is not None else 0.0
        return {
            "what": f"capacity for {self.alternative}",
            "since": self.capacity_search.since.timestamp(),
            "resume_at": at,
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
    if not isinstance(error, StockOut) and not is_full and not (searching and isinstance(error, _NOT_THERE)):
        return None
    now = run.stores.runs.clock.now()
    search, alternative, wait = (record.capacity_search or CapacitySearch(now)).after(refused, run.request.alternatives)
    if not wait:
        why = f"no capacity for {refused}; requesting {alternative} next"
        return Step(alternative, search, f"{why}, which the grant has in the region of the data as well")
    pause = search.pause(settings.retry_seconds() * FIRST_PAUSE)
    until = first_of(record.lease.expires_at, run.request.closes(record))
    resume_at = min(now + dt.timedelta(seconds=pause), until)
    waited = Wait(search.since, until).line(f"capacity for {alternative}", now, (resume_at - now).total_seconds())
    return Step(alternative, search, waited, resume_at)


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
