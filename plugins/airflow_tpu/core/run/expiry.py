# SPDX-License-Identifier: Apache-2.0
"""Which TPUs have outlived their right to exist; pure, so that the decision can be tested by table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.core.tpu.labels import expires_of, incarnation_of, run_of
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.core.tpu.spec import Phase

RUN_OVER = frozenset({"success", "failed"})
_ENDED = frozenset({Phase.LOST, Phase.FAILED, Phase.DELETING})


class Living(Protocol):
    """A node or a queued resource."""

    @property
    def name(self) -> ResourceName: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def phase(self) -> Phase: ...


@dataclass(frozen=True)
class LeaseState:
    """What is known of the lease of a run.

    :param run: digest of the run.
    :param expires_at: end of its right.
    :param run_state: state of the DAG run, empty when Airflow no longer knows it, None when it could not be asked.
    :param token: of the attempt that held it before the DAG run was asked for.
    :param is_ours: whether it is of a run of this Airflow; the state of any other is never known.
    """

    run: str
    expires_at: dt.datetime
    run_state: str | None
    token: str = ""
    is_ours: bool = True

    @property
    def run_is_over(self) -> bool:
        """Whether Airflow has said that the DAG run has ended, or that there is none."""
        return self.run_state == "" or self.run_state in RUN_OVER


@dataclass(frozen=True)
class Deletion:
    """A resource that is to be deleted, and why.

    :param name: which.
    :param run: digest of its run.
    :param reason: for people.
    """

    name: ResourceName
    run: str
    reason: str


def select_expired(
    airflows: Airflows, living: Iterable[Living], leases: Mapping[str, LeaseState] | None, now: dt.datetime
) -> list[Deletion]:
    """Decide what must go: only what carries the identity of this Airflow, and only what has no right left.

    :param airflows: this Airflow; while it has no identity nothing goes.
    :param living: nodes and queued resources of the whole project.
    :param leases: by digest of the run, read *after* the snapshot: a lease is there before its TPU, so a TPU without
        one has been forgotten. None if they could not be read: then the TPU's own label decides, and a TPU without a
        lease stays; so it is with one whose lease is in another bucket or prefix.
    :param now: the instant to judge at.
    """
    living = tuple(living)
    newest = _newest(living)
    found = []
    for item in living:
        run = run_of(item.labels)
        if run is None or not airflows.owns(item.labels):
            continue
        lease = None if leases is None else leases.get(run)
        blind = leases is None or (lease is None and not airflows.keeps_lease(item.labels))
        reason = _expired(item, None, now) if blind else _reason(item, lease, now)
        if not reason and (incarnation_of(item.labels) or 0) < newest.get(run, 0):
            # A create that was on its way while a newer attempt took over can no longer be called back.
            reason = f"incarnation {newest[run]} of its run has taken its place"
        if reason:
            found.append(Deletion(item.name, run, reason))
    return found


def is_over(lease: LeaseState | None, now: dt.datetime) -> bool:
    """Whether the run of a lease will ask for nothing any more; False as long as that is unknown."""
    if lease is None or lease.expires_at <= now:
        return True
    return lease.run_is_over


def _newest(living: Iterable[Living]) -> dict[str, int]:
    """Number of the newest incarnation of each run that is alive or on its way."""
    found: dict[str, int] = {}
    for item in living:
        run = run_of(item.labels)
        if run is not None and item.phase not in _ENDED:
            found[run] = max(found.get(run, 0), incarnation_of(item.labels) or 0)
    return found


def _expired(item: Living, lease: LeaseState | None, now: dt.datetime) -> str:
    expires = expires_of(item.labels)
    if lease is not None and lease.expires_at > now:
        expires = max(expires or lease.expires_at, lease.expires_at)
    if expires is None or expires <= now:
        return f"its lease ended {expires:%Y-%m-%d %H:%M} UTC" if expires else "it carries no expiry"
    return ""


def _reason(item: Living, lease: LeaseState | None, now: dt.datetime) -> str:
    expired = _expired(item, lease, now)
    if expired:
        return expired
    if lease is None:
        return "no run holds a lease on it"
    if lease.run_state == "":
        return "its DAG run no longer exists"
    if lease.run_state in RUN_OVER:
        return f"its DAG run is over ({lease.run_state})"
    return ""
