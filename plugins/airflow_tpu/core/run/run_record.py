# SPDX-License-Identifier: Apache-2.0
"""The record of one session: its lease on a TPU, its trainings, and what is known of each incarnation."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_tpu.core import json_form
from airflow_tpu.core.grant.alternatives import Alternative, CapacitySearch
from airflow_tpu.core.ledger.events import EndReason, TimeSource
from airflow_tpu.core.run.budget import Spent
from airflow_tpu.core.run.job import NEVER_STARTED, LastAttempt
from airflow_tpu.core.tpu.labels import LeaseStamp, RunKey


@dataclass(frozen=True)
class Life:
    """What is known of one incarnation while it lives; the ledger's *closed* event is made of it.

    :param ready_at: when the node was READY, None while unknown.
    :param source: whose clock that is.
    :param training_seconds: how long scripts ran on it.
    :param artifact_bytes: bytes they wrote to the bucket.
    :param stalls: how often the run stalled on it.
    :param began_at: when the user's process was last started on it, None if it never was.
    :param ended_at: when its READY time ended if the delete that was asked for takes effect, None before.
    :param end_reason: why it ended.
    :param end_source: whose clock that is.
    :param host_keys: SSH host key of each worker at the first login: later ones accept no other unless the API
        publishes it. Public, so it may be stored.
    :param cause: what the last attempt on it came to for the TPU, as the task knows that saw it end; None while it
        runs. It counts before what the API shows of the TPU afterwards.
    :param lost_seconds: work that the end of that attempt has lost, None if unknown.
    :param deleting: a process of ours has begun to delete it: gone after that, it did not vanish.
    """

    ready_at: dt.datetime | None = None
    source: TimeSource = TimeSource.OBSERVED
    training_seconds: float = 0.0
    artifact_bytes: int = 0
    stalls: int = 0
    began_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    end_reason: EndReason | None = None
    end_source: TimeSource = TimeSource.OBSERVED
    host_keys: tuple[str, ...] = ()
    cause: EndReason | None = None
    lost_seconds: float | None = None
    deleting: bool = False


@dataclass(frozen=True)
class Holder:
    """Which DAG run has taken a lease. The ids alone do not say: a deleted DAG run may be triggered again by its id.

    :param started_at: when that DAG run was started, None if it does not know.
    :param clear_number: how often it had been cleared by then.
    :param around: digests of the sessions of that DAG run which this one is inside of: they end only after it.
    """

    started_at: dt.datetime | None = None
    clear_number: int = 0
    around: tuple[str, ...] = ()

    def is_followed_by(self, other: Holder) -> bool:
        """Whether the other is this very DAG run, in a later try or after a clear.

        A clear gives a DAG run a higher number and, if it was over, a new start.
        """
        if other.clear_number != self.clear_number:
            return other.clear_number > self.clear_number
        return other.started_at == self.started_at

    def __str__(self) -> str:
        start = f"{self.started_at:%Y-%m-%d %H:%M:%S} UTC" if self.started_at else "an unknown time"
        return f"a DAG run of these ids that was started at {start}"


@dataclass(frozen=True)
class Lease:
    """The right of a run to its TPU.

    :param token: changes each time the lease is taken; a delete is fenced by it.
    :param expires_at: the run's deadline; what is alive after it may be reaped.
    :param holder: which DAG run has taken it, None if unknown.
    """

    token: str
    expires_at: dt.datetime
    holder: Holder | None = None

    @property
    def around(self) -> tuple[str, ...]:
        """Digests of the runs that end only after this one."""
        return self.holder.around if self.holder is not None else ()

    def renewed(self, token: str, expires_at: dt.datetime, holder: Holder | None = None) -> Lease:
        """The same lease taken again: an older attempt's token no longer opens anything."""
        return Lease(token, expires_at, holder or self.holder)

    def is_held_against(self, holder: Holder | None, now: dt.datetime) -> bool:
        """Whether another DAG run has the right, and it has not expired."""
        if self.holder is None or holder is None or self.expires_at <= now:
            return False
        return not self.holder.is_followed_by(holder)


@dataclass(frozen=True)
class RunRecord:
    """What is known of a run; it outlives tries, clears and the loss of every Airflow process.

    :param key: whose record it is.
    :param lease: the run's right to a TPU.
    :param zone: where the current incarnation was asked for.
    :param incarnation: number of the current physical life, 0 before the first create.
    :param trainings: the last attempt of each training, by its name in the session.
    :param current: the training that was started last, empty before the first.
    :param spent: what the run has used of its budget of interruptions.
    :param lives: what is known of each incarnation, by node id.
    :param alternative: which TPU is asked for, None for the one of the form.
    :param capacity_search: the search for capacity, None while there is none.
    :param refusals: creates in a row that the API has answered with an error which may pass.
    :param from_grant: the fields that the run left out, as the grant filled them when the lease was taken: a grant that
        changes meanwhile moves no run.
    :param commit: of the repository that the project is in, empty without one.
    :param unanswered: creates in a row that it has not answered.
    """

    key: RunKey
    lease: Lease
    zone: str
    incarnation: int = 0
    trainings: Mapping[str, LastAttempt] = field(default_factory=dict)
    current: str = ""
    spent: Spent = field(default_factory=Spent)
    lives: Mapping[str, Life] = field(default_factory=dict)
    alternative: Alternative | None = None
    capacity_search: CapacitySearch | None = None
    refusals: int = 0
    from_grant: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    unanswered: int = 0

    @property
    def node_id(self) -> str:
        """Name of the current incarnation's node."""
        return self.key.node_id(self.incarnation)

    @property
    def stamp(self) -> LeaseStamp:
        """What the node's labels say of the lease."""
        return LeaseStamp(token=self.lease.token, expires_at=self.lease.expires_at, incarnation=self.incarnation)

    def renewed(self, token: str, expires_at: dt.datetime, holder: Holder | None = None, commit: str = "") -> RunRecord:
        """The same record with its lease taken again."""
        return replace(self, lease=self.lease.renewed(token, expires_at, holder), commit=commit)

    def next_incarnation(self, at_least: int = 0, zone: str = "") -> RunRecord:
        """The record for the next physical life, in this zone."""
        return replace(self, incarnation=max(self.incarnation, at_least) + 1, zone=zone or self.zone)

    def next_attempt(self, begun: LastAttempt, training: str = "") -> RunRecord:
        """The record with one more attempt of a training, whose number follows that of its last one.

        :param begun: on which node, when, for what.
        :param training: its name in the session.
        """
        last = self.last_attempt(training)
        attempt = replace(begun, number=last.number + 1, first_at=last.first_at or begun.at)
        record = self.with_life(attempt.node_id, began_at=attempt.at, cause=None, lost_seconds=None, deleting=False)
        return replace(record, trainings={**self.trainings, training: attempt}, current=training)

    def last_attempt(self, training: str = "") -> LastAttempt:
        """The last attempt of a training; one with the number 0 before the first.

        :param training: its name in the session.
        """
        return self.trainings.get(training, NEVER_STARTED)

    def with_attempt(self, training: str, **changes: Any) -> RunRecord:
        """Remember something of the last attempt of a training; its TPU counts what all attempts on it have come to."""
        attempt = replace(self.last_attempt(training), **changes)
        trainings = {**self.trainings, training: attempt}
        here = [one for one in trainings.values() if one.node_id == attempt.node_id]
        sums = {
            "training_seconds": sum(one.seconds for one in here),
            "artifact_bytes": sum(one.artifact_bytes for one in here),
        }
        return replace(self, trainings=trainings).with_life(attempt.node_id, **sums)

    def life(self, node_id: str) -> Life:
        """What is known of an incarnation."""
        return self.lives.get(node_id, Life())

    def with_life(self, node_id: str, **changes: Any) -> RunRecord:
        """Remember something of an incarnation."""
        return replace(self, lives={**self.lives, node_id: replace(self.life(node_id), **changes)})


RUN_RECORD_FORM = json_form.StoredForm("run record", RunRecord)
"""The object in the bucket."""
