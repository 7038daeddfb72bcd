# SPDX-License-Identifier: Apache-2.0
"""Which TPUs must go."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu.core.run.expiry import LeaseState, select_expired
from airflow_tpu.core.tpu.labels import LABEL_STORE, LeaseStamp, RunKey, labels, store_mark
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import TPUView
from tests.airflow_tpu.identities import AIRFLOW, OWN

NOW = dt.datetime(2026, 11, 27, 12, 0, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
KEY = RunKey(AIRFLOW, "train", "manual__1")


def node(expires: dt.datetime, **changed: str) -> TPUView:
    """A READY node of our run."""
    found = {**labels(KEY, LeaseStamp("token", expires, 1)), **changed}
    return TPUView(node_name("p", "z", "train-1"), "READY", labels=found)


def lease(state: str | None, expires: dt.datetime = NOW + HOUR) -> dict[str, LeaseState]:
    """The run's lease and the state of its DAG run."""
    return {KEY.digest: LeaseState(KEY.digest, expires, state)}


@pytest.mark.parametrize("state", ["running", "queued", None])
def test_living_run_keeps_its_tpu(state: str | None) -> None:
    """A run that continues, or whose state could not be read, loses nothing before its lease ends."""
    assert select_expired(OWN, [node(NOW + HOUR)], lease(state), NOW) == []


@pytest.mark.parametrize(
    ("living", "leases", "reason"),
    [
        (node(NOW - HOUR), {}, "its lease ended"),
        (node(NOW - HOUR), lease("running", NOW - HOUR), "its lease ended"),
        (node(NOW + HOUR), {}, "no run holds a lease"),
        (node(NOW + HOUR), lease("success"), "its DAG run is over (success)"),
        (node(NOW + HOUR), lease("failed"), "its DAG run is over (failed)"),
        (node(NOW + HOUR), lease(""), "no longer exists"),
        (node(NOW + HOUR, **{"airflow-tpu-expires": "soon"}), {}, "no expiry"),
    ],
)
def test_forgotten_tpu_goes(living: TPUView, leases: dict[str, LeaseState], reason: str) -> None:
    """A TPU past its lease, without one, or whose run is over is deleted, and the reason is said."""
    (sentence,) = select_expired(OWN, [living], leases, NOW)
    assert sentence.name == living.name
    assert reason in sentence.reason


def test_renewed_lease_counts_although_the_label_is_old() -> None:
    """A deadline that was extended in the lease protects a node whose label still carries the old one."""
    assert select_expired(OWN, [node(NOW - HOUR)], lease("running", NOW + HOUR), NOW) == []


@pytest.mark.parametrize("foreign", [{}, {"managed-by": "somebody"}, {"airflow-tpu-run": KEY.digest}])
def test_what_is_not_ours_is_never_touched(foreign: dict[str, str]) -> None:
    """A colleague's node stays, however old, and whatever its name or labels look like."""
    view = TPUView(node_name("p", "z", "train-1"), "READY", labels=foreign)
    assert select_expired(OWN, [view], {}, NOW) == []


ROOT, MOVED = "gs://bucket/airflow-tpu", "gs://new-bucket/airflow-tpu"


@pytest.mark.parametrize(
    ("expires", "leases", "goes"),
    [(HOUR, {}, False), (-HOUR, {}, True), (HOUR, lease("failed"), True), (HOUR, lease("running"), False)],
)
def test_lease_in_another_bucket_or_prefix_is_not_taken_for_forgotten(
    expires: dt.timedelta, leases: dict[str, LeaseState], goes: bool
) -> None:
    """After the grant file has moved, a TPU of ours goes by its label, unless its run has taken a lease here too."""
    own = replace(OWN, root=MOVED)
    view = node(NOW + expires, **{LABEL_STORE: store_mark(ROOT)})
    assert bool(select_expired(own, [view], leases, NOW)) is goes
    assert select_expired(replace(OWN, root=ROOT), [view], {}, NOW) != []
