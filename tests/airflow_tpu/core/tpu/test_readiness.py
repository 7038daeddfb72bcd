# SPDX-License-Identifier: Apache-2.0
"""One answer from node, queued resource and operation together."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from airflow_tpu.core.tpu.readiness import Sighting, Wait, readiness_of, spoken
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.core.tpu.spec import Endpoint, QueuedView, Tier, TPUView
from airflow_tpu.errors import StockOut, TPUPreempted, TPUVanished

UNTIL = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
NAME = ResourceName.parse("projects/p/locations/us-central1-f/nodes/train-1")


def node(state: str, health: str = "HEALTHY", endpoints: int = 1) -> TPUView:
    """A node of one worker in this state."""
    workers = (Endpoint("10.0.0.1"),) * endpoints
    return TPUView(NAME, state, health, tier=Tier.SPOT, endpoints=workers)


def queued(state: str, code: int = 0, message: str = "") -> QueuedView:
    """A queued resource in this state."""
    return QueuedView(NAME.queued, state, code, message)


def test_ready_and_healthy_node_is_ready_even_if_its_operation_never_ends() -> None:
    """The node's state is the truth; an operation that is never done does not hold the run back."""
    assert readiness_of(Sighting(node("READY"))).ready == node("READY")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Sighting(node("CREATING", "")), "now CREATING"),
        (Sighting(node("READY", "UNHEALTHY_MAINTENANCE")), "UNHEALTHY_MAINTENANCE"),
        (Sighting(node("READY", endpoints=0)), "now READY"),
        (Sighting(node("99")), "now 99"),
        (Sighting(None, queued("WAITING_FOR_RESOURCES"), is_queued=True), "now WAITING_FOR_RESOURCES"),
        (Sighting(None, None, is_queued=True), "the API to show the node"),
        (Sighting(None), "the API to show the node"),
    ],
)
def test_waits_for_what_may_still_come(seen: Sighting, words: str) -> None:
    """Whatever may still become READY, an unknown state included, is waited for, and the line says what is seen."""
    found = readiness_of(seen)
    assert found.ready is None
    assert found.error is None
    assert words in found.waiting_for


@pytest.mark.parametrize(("code", "message"), [(0, ""), (4, "Deadline exceeded"), (9, "Request has expired")])
def test_request_that_expired_is_a_lack_of_capacity(code: int, message: str) -> None:
    """Whatever Google calls it, a request that failed at the end of its time got no TPU; before, its error counts."""
    request = replace(queued("FAILED", code, message), valid_until=UNTIL)
    expired = readiness_of(Sighting(None, request, is_queued=True, at=UNTIL)).error
    assert isinstance(expired, StockOut)
    assert f"no capacity until {UNTIL}" in str(expired)
    earlier = Sighting(None, request, is_queued=True, at=UNTIL - dt.timedelta(seconds=1))
    assert not isinstance(readiness_of(earlier).error, StockOut)


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        (Sighting(node("PREEMPTED")), TPUPreempted),
        (Sighting(node("TERMINATED")), TPUPreempted),
        (Sighting(None, queued("SUSPENDED"), is_queued=True), TPUPreempted),
        (Sighting(None, queued("FAILED", 8, 'There is no more capacity in the zone "z"'), is_queued=True), StockOut),
        (Sighting(None, operation_done=True), TPUVanished),
        (Sighting(None, None, is_queued=True, operation_done=True), TPUVanished),
        (Sighting(node("CREATING", ""), operation_done=True, operation_error=StockOut("none")), StockOut),
    ],
)
def test_gives_up_on_what_cannot_come(seen: Sighting, error: type[Exception]) -> None:
    """A lost node, a dead queued resource and a failed operation end the wait with an error of the tree."""
    assert isinstance(readiness_of(seen).error, error)


RUNNING = Sighting(node("DELETING"), operation_running=True)
STUCK = [
    pytest.param(Sighting(node("READY", endpoints=0)), "the addresses of its workers (now READY", id="no endpoints"),
    pytest.param(Sighting(TPUView(NAME, "READY", endpoints=(Endpoint(""),))), "the addresses", id="empty address"),
    pytest.param(Sighting(node("READY", "42")), "READY, 42, which this release does not know", id="health 42"),
    pytest.param(Sighting(node("99")), "99, which this release does not know", id="state 99"),
    pytest.param(Sighting(node("REPAIRING")), "REPAIRING", id="repair"),
    pytest.param(Sighting(None, queued("77"), is_queued=True), "77, which this release does not know", id="queued 77"),
    pytest.param(Sighting(None, queued("SUSPENDING"), is_queued=True), "SUSPENDING", id="suspending"),
    pytest.param(Sighting(None, queued("ACTIVE"), is_queued=True), "which is ACTIVE", id="active without a node"),
    pytest.param(Sighting(None, is_queued=True), "the API to show the node", id="nothing"),
    pytest.param(RUNNING, "now DELETING", id="deleting while it is created"),
    pytest.param(Sighting(node("DELETING"), queued("SUSPENDING"), is_queued=True), "DELETING", id="taken back"),
]


@pytest.mark.parametrize(("seen", "words"), STUCK)
def test_what_does_not_come_by_itself_is_marked(seen: Sighting, words: str) -> None:
    """A wait with nothing to say that the TPU comes is marked, so that it has a bound, and says what is seen."""
    found = readiness_of(seen)
    assert (found.ready, found.error, found.unhealthy) == (None, None, True)
    assert words in found.waiting_for


@pytest.mark.parametrize("state", ["CREATING", "STARTING", "RESTARTING"])
def test_what_is_on_its_way_is_not_marked(state: str) -> None:
    """A node, or a request in the queue, that is on its way is waited for until the run's own limits."""
    found = readiness_of(Sighting(node(state, "")))
    assert (found.unhealthy, found.coming) == (False, True)


@pytest.mark.parametrize(
    ("state", "coming"),
    [("WAITING_FOR_RESOURCES", False), ("ACCEPTED", False), ("CREATING", True), ("PROVISIONING", True)],
)
def test_a_request_is_on_its_way_once_google_works_on_it(state: str, coming: bool) -> None:
    """The queue has no bound but the run's; what is registered or provisioned has one of its own."""
    found = readiness_of(Sighting(None, queued(state), is_queued=True))
    assert (found.unhealthy, found.coming) == (False, coming)


@pytest.mark.parametrize("seen", [Sighting(None, queued("DELETING"), is_queued=True), Sighting(node("DELETING"))])
def test_what_somebody_deletes_is_not_waited_for(seen: Sighting) -> None:
    """A request or a node that is DELETING never becomes a TPU: the error says so."""
    error = readiness_of(seen).error
    assert isinstance(error, TPUVanished)
    assert "DELETING" in str(error)


def test_wait_line_says_since_when_next_check_and_deadline() -> None:
    """A person who opens the log sees how long it has waited, when it looks again and when it gives up."""
    since = dt.datetime(2026, 11, 27, 1, 0, 0, tzinfo=dt.UTC)
    wait = Wait(since, since + dt.timedelta(hours=2))
    line = wait.line("the node", since + dt.timedelta(seconds=90), 15)
    assert line == (
        "waiting for the node: 90 s since 01:00:00 UTC, next check in 15 s, giving up at 2026-11-27 03:00 UTC"
    )


def test_wait_of_days_names_its_first_day() -> None:
    """Since two days ago is told in days, and with the date."""
    since = dt.datetime(2026, 11, 25, 1, 0, 0, tzinfo=dt.UTC)
    line = Wait(since, since + dt.timedelta(days=9)).line("capacity", since + dt.timedelta(days=2, hours=3), 1799.6)
    assert line == (
        "waiting for capacity: 2 d 3 h since 2026-11-25 01:00 UTC, next check in 30 min, "
        "giving up at 2026-12-04 01:00 UTC"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h 0 min"), (172800, "2 d 0 h")],
)
def test_spans_are_told_in_the_units_that_matter(seconds: int, words: str) -> None:
    """Each unit takes over where the smaller one would have three digits or so."""
    assert spoken(seconds) == words
