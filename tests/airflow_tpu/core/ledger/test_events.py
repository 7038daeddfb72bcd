# SPDX-License-Identifier: Apache-2.0
"""The two events of an incarnation."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from airflow_tpu.core.ledger.events import (
    Closed,
    EndReason,
    Opened,
    TimeSource,
    Transfer,
    event_from_bytes,
    event_from_json,
    event_to_bytes,
    event_to_json,
)
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
    assert event_from_bytes(event_to_bytes(event)) == event
    assert event_from_json(event_to_json(event)) == event


def test_a_repeated_write_is_the_same_object() -> None:
    """The same event has the same path and bytes, in whatever timezone the worker thinks."""
    again = replace(OPENED, requested_at=ASKED.astimezone(ZoneInfo("Asia/Seoul")))
    assert (again.path, event_to_bytes(again)) == (OPENED.path, event_to_bytes(OPENED))
    assert event_to_bytes(replace(OPENED, chips=8)) != event_to_bytes(OPENED)


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
        event_to_bytes(OPENED).replace(b'"version":1', b'"version":2'),
        event_to_bytes(OPENED).replace(b'"spot"', b'"sport"'),
        event_to_bytes(OPENED).replace(b"+00:00", b""),
        event_to_bytes(OPENED).replace(b'"outward"', b'"inward"'),
        event_to_bytes(CLOSED).replace(b'"preempted"', b'"gone"'),
        event_to_bytes(CLOSED).replace(b'"time_source"', b'"source"'),
    ],
)
def test_damaged_objects(content: bytes) -> None:
    """An object that is no event stops the reading; it is never counted as nothing."""
    with pytest.raises(LedgerError):
        event_from_bytes(content)


def test_a_ready_time_needs_an_end() -> None:
    """A closed incarnation that was READY and never ended would count for ever."""
    with pytest.raises(ValueError, match="no end"):
        Closed("n", ASKED, None, EndReason.FINISHED)


def test_no_nan_gets_into_the_ledger() -> None:
    """NaN is no JSON; it is refused when written, not when read."""
    with pytest.raises(ValueError, match="JSON"):
        event_to_bytes(replace(CLOSED, training_seconds=float("nan")))


def test_no_naive_time_gets_into_the_ledger() -> None:
    """A time without a timezone would be another instant elsewhere."""
    with pytest.raises(ValueError, match="timezone"):
        event_to_bytes(replace(OPENED, requested_at=datetime(2026, 1, 1)))  # noqa: DTZ001 - the point of the test
