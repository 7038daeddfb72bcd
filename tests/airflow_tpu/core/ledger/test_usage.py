# SPDX-License-Identifier: Apache-2.0
"""What a ledger adds up to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.ledger.billable import StoredBytes
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource
from airflow_tpu.core.ledger.usage import NOT_COVERED, fold
from airflow_tpu.core.tpu.spec import Tier
from tests.airflow_tpu.core.made_ledger import ASKED, NODE, NOW, ROW, closed, opened


def test_chip_hours_and_list_value(catalogue: Catalogue) -> None:
    """Four chips for ninety minutes are six chip-hours, worth six times the list price; nothing of it is paid."""
    usage = fold([opened(), closed(training_seconds=3600.0)], catalogue, NOW)
    assert usage.covered.chip_hours == Decimal(6)
    assert usage.covered.list_value == Decimal("6.75")
    assert usage.idle == Decimal(2)
    assert usage.not_covered.chip_hours == 0
    assert usage.by_allowance[ROW] == usage.by_dag["tpu_train"] == usage.by_day["2026-11-27"] == usage.covered


def test_the_order_of_events_does_not_matter(catalogue: Catalogue) -> None:
    """A fold is a function of the set of events; a repeated one counts once, and rows stand in order of time."""
    events: list[Opened | Closed] = [
        opened("b"),
        closed("b"),
        opened("a", requested_at=ASKED + timedelta(hours=1)),
        closed("a"),
    ]
    assert fold(events, catalogue, NOW) == fold([*reversed(events), events[0]], catalogue, NOW)
    assert [row.opened.node_id for row in fold(reversed(events), catalogue, NOW).rows] == ["b", "a"]


def test_a_running_incarnation_counts_up_to_now(catalogue: Catalogue) -> None:
    """Without an end it is still running, or leaked: it counts from the request, which is never too little."""
    usage = fold([opened()], catalogue, ASKED + timedelta(hours=2))
    (row,) = usage.running
    assert (row.state, row.estimated, row.chip_hours, row.idle_chip_hours) == ("running", True, Decimal(8), None)


def test_a_clock_behind_the_ledger_counts_nothing(catalogue: Catalogue) -> None:
    """A reader whose clock is behind sees no negative chip-hours."""
    assert fold([opened()], catalogue, ASKED - timedelta(minutes=7)).covered.chip_hours == 0


@pytest.mark.parametrize(
    ("seconds", "reason", "chip_hours"),
    [
        (59.9, EndReason.PREEMPTED, Decimal(0)),
        (60, EndReason.PREEMPTED, Decimal(240) / 3600),
        (59, EndReason.FINISHED, Decimal(236) / 3600),
    ],
)
def test_preempted_in_the_first_minute(
    catalogue: Catalogue, seconds: float, reason: EndReason, chip_hours: Decimal
) -> None:
    """A TPU that Google takes back within its first minute is not charged; one that ends by itself is."""
    usage = fold([opened(), closed(minutes=seconds / 60, reason=reason)], catalogue, NOW)
    assert usage.covered.chip_hours == pytest.approx(chip_hours)


def test_never_ready_counts_nothing(catalogue: Catalogue) -> None:
    """Waiting for capacity costs nothing and shows nothing as billed."""
    usage = fold([opened(), Closed(NODE, None, None, EndReason.NEVER_READY)], catalogue, NOW)
    assert usage.covered.chip_hours == 0
    assert usage.by_day == {}
    assert usage.not_free == ()


def test_the_end_is_the_preemption_not_the_teardown(catalogue: Catalogue) -> None:
    """What the ledger says has ended after 40 minutes counts 40 minutes, whenever it is read."""
    usage = fold([opened(), closed(minutes=40, reason=EndReason.PREEMPTED)], catalogue, NOW + timedelta(days=9))
    assert usage.rows[0].hours == Decimal(40) / 60


def test_an_unknown_price_is_not_zero(catalogue: Catalogue) -> None:
    """A zone without a published price leaves the value unknown, and the chip-hours counted."""
    usage = fold([opened(accelerator_type="v3-8", zone="us-east1-d", tier=Tier.SPOT), closed()], catalogue, NOW)
    assert usage.covered.known_value is None
    assert usage.covered.unpriced == usage.covered.chip_hours == Decimal(6)


def test_days_are_utc_and_add_up(catalogue: Catalogue) -> None:
    """An incarnation over midnight is split between the days."""
    late = datetime(2026, 11, 27, 23, 30, tzinfo=UTC)
    usage = fold([opened(), closed(minutes=60 * 25, ready_at=late)], catalogue, NOW)
    assert {day: total.chip_hours for day, total in usage.by_day.items()} == {
        "2026-11-27": Decimal(2),
        "2026-11-28": Decimal(96),
        "2026-11-29": Decimal(2),
    }


def test_what_is_not_free(catalogue: Catalogue) -> None:
    """Addresses, stored bytes, TPUs outside the grant and accepted traffic are lines of their own."""
    events: list[Opened | Closed] = [
        opened("a"),
        closed("a", minutes=120, artifact_bytes=3 * 1024**3),
        opened("b", tier=Tier.PREEMPTIBLE, allowance="100 spot ...", external_ips=4, paid_reason="bucket in the EU"),
        closed("b", minutes=60),
        opened("c", allowance=None, paid_reason="deadline", external_ips=0),
        closed("c", minutes=60),
    ]
    usage = fold(events, catalogue, NOW)
    lines = {line.what: (line.quantity, line.usd) for line in usage.not_free}
    assert lines == {
        "TPU on-demand v2-8, us-central1-f": (Decimal(4), Decimal("4.5")),
        "external IPv4 addresses, on-demand": (Decimal(2), Decimal("0.01")),
        "external IPv4 addresses, spot": (Decimal(4), Decimal("0.01")),
        "artifacts written to the bucket": (Decimal(3), None),
        "workers without an external address": (Decimal(1), None),
        "traffic to a bucket in another region": (None, None),
    }
    assert usage.by_allowance[NOT_COVERED] == usage.not_covered
    assert usage.not_covered.chip_hours == Decimal(4)


def test_addresses_are_billed_in_the_first_minute_too(catalogue: Catalogue) -> None:
    """The grace of the TPU is not one of the address."""
    usage = fold([opened(), closed(minutes=0.5, reason=EndReason.PREEMPTED)], catalogue, NOW)
    assert [line.what for line in usage.not_free] == ["external IPv4 addresses, on-demand"]


def test_what_the_bucket_keeps_is_billed(catalogue: Catalogue) -> None:
    """Kept and soft-deleted bytes are lines without a price, and what could not be listed is said, not left out."""
    gib = 1024**3
    lines = {line.what: line.quantity for line in fold([], catalogue, NOW, StoredBytes(3 * gib, 2 * gib)).not_free}
    assert lines == {"kept in the bucket now": 3, "soft-deleted objects": 2}
    (line,) = fold([], catalogue, NOW, StoredBytes(0)).not_free
    assert (line.what, line.quantity, line.usd) == ("soft-deleted objects", None, None)
    assert fold([], catalogue, NOW, StoredBytes(0, 0)).not_free == ()


def test_traffic_that_was_accepted_counts_what_was_written(catalogue: Catalogue) -> None:
    """A covered TPU with a bucket elsewhere has sent at least its artifacts there."""
    events: list[Opened | Closed] = [opened(paid_reason="bucket in the EU"), closed(artifact_bytes=2 * 1024**3)]
    lines = {line.what: (line.quantity, line.unit) for line in fold(events, catalogue, NOW).not_free}
    assert lines["traffic to a bucket in another region"] == (Decimal(2), "GiB or more")


def test_workers_of_an_unknown_type_are_not_guessed(catalogue: Catalogue) -> None:
    """Without external addresses a NAT may serve the workers; how many a type of tomorrow has is unknown."""
    usage = fold([opened(external_ips=0, accelerator_type="v9-8"), closed()], catalogue, NOW)
    assert [(line.what, line.quantity) for line in usage.not_free] == [("workers without an external address", None)]


@pytest.mark.parametrize(
    ("lost_seconds", "lost", "unknown"),
    [
        (1800.0, Decimal(2), 0),
        (0.0, Decimal(0), 0),
        (None, Decimal(0), 1),
        (float("nan"), Decimal(0), 1),
        (10.0**9, Decimal(6), 0),
    ],
)
def test_lost_work_stands_apart(catalogue: Catalogue, lost_seconds: float | None, lost: Decimal, unknown: int) -> None:
    """What was trained after the newest safe checkpoint is counted, at most the whole incarnation, or is unknown."""
    events: list[Opened | Closed] = [
        opened(),
        closed(reason=EndReason.PREEMPTED, training_seconds=5400.0, lost_seconds=lost_seconds),
    ]
    usage = fold(events, catalogue, NOW)
    assert (usage.lost, usage.lost_unknown, usage.covered.chip_hours) == (lost, unknown, Decimal(6))


def test_waiting_is_from_the_request_to_ready(catalogue: Catalogue) -> None:
    """Five minutes of waiting are no chip-hours, and the wait of one that is still waiting is unknown."""
    waits = [row.wait_seconds for row in fold([opened("a"), closed("a"), opened("b")], catalogue, NOW).rows]
    assert waits == [300.0, None]


def test_runs_of_equal_ids_are_two_runs(catalogue: Catalogue) -> None:
    """Two Airflows of one bucket and prefix schedule runs of the same name: neither pays for the other."""
    theirs = opened("theirs", airflow="b2")
    usage = fold([opened(airflow="a1"), closed(), theirs, closed("theirs", minutes=30)], catalogue, NOW)
    hours = {name: total.chip_hours for name, total in usage.by_run.items()}
    assert hours == {"tpu_train / manual__1 of Airflow a1": 6, "tpu_train / manual__1 of Airflow b2": 2}


def test_an_observed_end_is_marked(catalogue: Catalogue) -> None:
    """Times that are not the API's are an estimate."""
    usage = fold([opened(), closed(time_source=TimeSource.OBSERVED)], catalogue, NOW)
    assert usage.rows[0].estimated


@pytest.mark.parametrize("seconds", [-5.0, float("nan"), float("inf"), 10.0**9])
def test_odd_training_times(catalogue: Catalogue, seconds: float) -> None:
    """Idle time is between nothing and everything, whatever the worker's clock said."""
    usage = fold([opened(), closed(training_seconds=seconds)], catalogue, NOW)
    assert usage.idle in (Decimal(0), Decimal(6))


def test_a_ledger_with_a_hole(catalogue: Catalogue) -> None:
    """An end without a beginning says nothing that could be counted; the other TPUs are added up all the same."""
    usage = fold([closed("lost"), opened(), closed()], catalogue, NOW)
    assert [row.opened.node_id for row in usage.rows] == [opened().node_id]


def test_an_empty_ledger(catalogue: Catalogue) -> None:
    """Nothing adds up to nothing."""
    usage = fold([], catalogue, NOW)
    assert not usage.rows
    assert not usage.not_free
    assert usage.covered.chip_hours == 0


lives = st.lists(st.tuples(st.integers(0, 10**11), st.sampled_from([1, 4, 32]), st.booleans()), max_size=8)


@given(lives)
def test_every_grouping_has_the_same_total(catalogue: Catalogue, lives: list[tuple[int, int, bool]]) -> None:
    """Chip-hours are neither lost nor doubled between rows, allowances, DAGs and days."""
    events: list[Opened | Closed] = []
    for number, (microseconds, chips, covered) in enumerate(lives):
        node_id = f"n{number}"
        events.append(opened(node_id, chips=chips, dag_id=f"dag{chips}", allowance=ROW if covered else None))
        events.append(closed(node_id, minutes=microseconds / 60_000_000))
    usage = fold(events, catalogue, NOW)
    whole = usage.covered.chip_hours + usage.not_covered.chip_hours
    for group in (usage.by_allowance, usage.by_dag, usage.by_run, usage.by_day):
        assert sum(total.chip_hours for total in group.values()) == pytest.approx(whole, rel=Decimal("1e-20"))
