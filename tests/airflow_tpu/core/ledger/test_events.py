"""The two events of an incarnation."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource, Transfer, read_event
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import LedgerError
from tests.airflow_tpu.core.made_ledger import ASKED, closed, opened

OPENED = opened(
    run_id="수동__2026-11-27T12:00:00+00:00",
    tier=Tier.SPOT,
    provisioning="queued-resource",
    allowance="100 spot v2-8 devices in us-central1-f",
    transfers=(Transfer("gs://far-away/runs", "EUROPE-WEST4", outward=True), Transfer("gs://a/b", "", False, 7)),
)
CLOSED = closed(
    minutes=12.000001,
    reason=EndReason.PREEMPTED,
    time_source=TimeSource.OBSERVED,
    training_seconds=600.5,
    artifact_bytes=12,
    lost_seconds=None,
)
NEVER_READY = Closed(OPENED.node_id, None, None, EndReason.NEVER_READY)


@pytest.mark.parametrize("event", [OPENED, CLOSED, NEVER_READY], ids=["opened", "closed", "never-ready"])
def test_events_are_read_back(event: Opened | Closed) -> None:
    """What is written is what is read."""
    assert read_event(event.to_bytes()) == event
    assert type(event).from_json(event.to_json()) == event


def test_an_older_object_is_read() -> None:
    """An end from before lost work was recorded has lost nothing that anybody knows of, a beginning no bucket known."""
    data = closed().to_json()
    del data["lost_seconds"]
    assert Closed.from_json(data) == closed()
    earlier = OPENED.to_json()
    del earlier["transfers"]
    assert Opened.from_json(earlier) == replace(OPENED, transfers=None)


def test_a_repeated_write_is_the_same_object() -> None:
    """The same event has the same path and bytes, in whatever timezone the worker thinks."""
    again = replace(OPENED, requested_at=ASKED.astimezone(ZoneInfo("Asia/Seoul")))
    assert (again.path, again.to_bytes()) == (OPENED.path, OPENED.to_bytes())
    assert replace(OPENED, chips=8).to_bytes() != OPENED.to_bytes()


def test_paths_are_derived_from_the_node() -> None:
    """Both events of an incarnation lie in its folder, under different names."""
    assert OPENED.path == "ledger/incarnations/tpu-train-0123456789-1/opened.json"
    assert CLOSED.path == "ledger/incarnations/tpu-train-0123456789-1/closed.json"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"event": "opened"}',
        b'{"event": "opened", "version": 1}',
        b'{"event": "reopened", "version": 1}',
        OPENED.to_bytes().replace(b'"version":1', b'"version":2'),
        OPENED.to_bytes().replace(b'"spot"', b'"sport"'),
        OPENED.to_bytes().replace(b"+00:00", b""),
        OPENED.to_bytes().replace(b'"outward"', b'"inward"'),
        CLOSED.to_bytes().replace(b'"preempted"', b'"gone"'),
        CLOSED.to_bytes().replace(b'"time_source"', b'"source"'),
    ],
)
def test_damaged_objects(content: bytes) -> None:
    """An object that is no event stops the reading; it is never counted as nothing."""
    with pytest.raises(LedgerError):
        read_event(content)


def test_a_ready_time_needs_an_end() -> None:
    """A closed incarnation that was READY and never ended would count for ever."""
    with pytest.raises(ValueError, match="no end"):
        Closed("n", ASKED, None, EndReason.FINISHED)


def test_no_nan_gets_into_the_ledger() -> None:
    """NaN is no JSON; it is refused when written, not when read."""
    with pytest.raises(ValueError, match="JSON"):
        replace(CLOSED, training_seconds=float("nan")).to_bytes()


def test_no_naive_time_gets_into_the_ledger() -> None:
    """A time without a timezone would be another instant elsewhere."""
    with pytest.raises(ValueError, match="timezone"):
        replace(OPENED, requested_at=datetime(2026, 1, 1)).to_bytes()  # noqa: DTZ001 - the point of the test
