"""The lease object: taken, taken again, changed by its holder only, given back."""

from __future__ import annotations

import dataclasses
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from airflow_tpu.core.run.run_record import Holder, Lease
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import LeaseHeld, LeaseLost, TransientError
from airflow_tpu.hooks.artifacts import ArtifactsHook
from tests.airflow_tpu.site import KEY, ZONE, Site, now


def test_acquired_lease_is_read_back(site: Site) -> None:
    """What one task writes another task reads, to the last field."""
    lease = site.lease()
    lease = site.leases.update(lease, lambda found: found.with_life("n-1", ready_at=now(), training_seconds=2.5))
    assert site.leases.read(KEY) == lease


def test_reading_without_a_lease_says_what_to_clear(site: Site) -> None:
    """A task that is cleared alone after the teardown fails and names the setup task."""
    with pytest.raises(LeaseLost, match="setup task 'lease'"):
        site.leases.read(KEY)


def test_taking_it_again_fences_the_older_attempt(site: Site) -> None:
    """The older token changes nothing any more; counters and lives go on."""
    older = site.leases.update(site.lease(), lambda found: found.next_incarnation().next_attempt("n-1"))
    newer = site.leases.acquire(KEY, ZONE, now() + dt.timedelta(hours=2))
    assert newer.token != older.token
    assert (newer.incarnation, newer.attempt, newer.attempt_node) == (1, 1, "n-1")
    with pytest.raises(LeaseLost, match="newer attempt"):
        site.leases.update(older, Lease.next_incarnation)
    assert site.leases.read(KEY) == newer


def test_update_builds_on_what_is_there(site: Site) -> None:
    """Two tasks of one attempt lose none of each other's changes, however old their copies are."""
    lease = site.lease()
    site.leases.update(lease, lambda found: found.next_attempt("n-1"))
    site.leases.update(lease, lambda found: found.with_life("n-1", artifact_bytes=7))
    found = site.leases.read(KEY)
    assert (found.attempt, found.life("n-1").artifact_bytes) == (1, 7)


def test_lost_answers_do_not_lose_the_lease(site: Site) -> None:
    """A lease whose write took effect without an answer is held, with the token that was written."""
    site.cloud.add_fault("gcs.request", {"method": "POST"}, action="lose-response")
    lease = site.lease()
    assert site.cloud.cloud.faults.unused() == []
    assert site.leases.update(lease, Lease.next_incarnation).token == lease.token


def test_ten_at_once_leave_one_holder(site: Site) -> None:
    """Of ten threads that take the lease together one ends up with it; none of the others can change anything."""
    start = Barrier(10)

    def take(_: int) -> Lease | None:
        own = dataclasses.replace(site, storage=ArtifactsHook())
        start.wait(30)
        try:
            return own.lease()
        except TransientError:
            return None  # lost every race: told so, and holds nothing

    with ThreadPoolExecutor(10) as pool:
        taken = [lease for lease in pool.map(take, range(10)) if lease is not None]
    holder = site.leases.read(KEY)
    assert [lease for lease in taken if _may_change(site, lease)] == [holder]


def _may_change(site: Site, lease: Lease) -> bool:
    try:
        site.leases.update(lease, lambda found: found)
    except LeaseLost:
        return False
    return True


def test_runs_do_not_share_a_lease(site: Site) -> None:
    """Mapped tasks and other runs have leases of their own."""
    site.lease()
    other = site.lease(RunKey(KEY.dag_id, KEY.run_id, 3))
    site.leases.release(KEY)
    assert site.leases.read(other.key).token == other.token


def test_release_is_idempotent(site: Site) -> None:
    """Giving back twice succeeds, and a task that comes later learns that the lease is gone."""
    lease = site.lease()
    site.leases.release(KEY)
    site.leases.release(KEY)
    with pytest.raises(LeaseLost):
        site.leases.update(lease, Lease.next_incarnation)


def test_lease_of_another_airflow_is_refused_until_it_expires(site: Site) -> None:
    """A second DAG run of the same ids is told whose the lease is, until when, and what to do; it changes nothing."""
    start, end = now(), now() + dt.timedelta(hours=1)
    held = site.leases.acquire(KEY, ZONE, end, Holder(start, 0, "http://laptop"))
    other = Holder(start + dt.timedelta(minutes=1), 0, "http://composer")
    with pytest.raises(LeaseHeld) as caught:
        site.leases.acquire(KEY, ZONE, end, other)
    for words in ("in http://laptop", f"until {end:%Y-%m-%d %H:%M} UTC", f"delete {site.leases.uri(KEY)}"):
        assert words in str(caught.value)
    assert site.leases.read(KEY) == held
    site.leases.update(held, lambda lease: dataclasses.replace(lease, expires_at=now()))
    assert site.leases.acquire(KEY, ZONE, end, other).holder == other
