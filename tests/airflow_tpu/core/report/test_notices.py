# SPDX-License-Identifier: Apache-2.0
"""The daily look at the grant: notices on the days Google mails, and everything alive that is billed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory, InventoryItem
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened
from airflow_tpu.core.ledger.usage import fold
from airflow_tpu.core.report.notices import due_stage, notice, standing, uncovered
from airflow_tpu.core.report.text import ACKNOWLEDGEMENT
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import QueuedView, Tier
from tests.airflow_tpu.core.grant import two_rows
from tests.airflow_tpu.core.made_ledger import ASKED, ROW, closed, opened

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def item(name: str = "n", zone: str = "us-central1-f", alive: bool = True, kind: str = "v2-8") -> InventoryItem:
    """An on-demand TPU of the project."""
    return InventoryItem(node_name("p", zone, name), kind, Tier.ON_DEMAND, zone, None, alive)


@pytest.mark.parametrize(
    ("now", "stage"),
    [
        ("2026-11-22T23:59+01:00", None),
        ("2026-11-23T00:00+01:00", 7),
        ("2026-11-28T23:59+01:00", 7),
        ("2026-11-29T00:00+01:00", 1),
        ("2026-11-29T23:59+01:00", 1),
        ("2026-11-30T00:00+01:00", 0),
    ],
)
def test_notices_are_due_by_the_timezone_of_the_grant(local_grant: Grant, now: str, stage: int | None) -> None:
    """A notice is due from midnight of its day in the grant's timezone, not in UTC."""
    start = datetime.fromisoformat("2026-10-31T00:00+01:00")
    grant = replace(local_grant, start=start, days=30, timezone="Europe/Berlin")
    assert due_stage(grant, datetime.fromisoformat(now)) == stage


def test_what_no_allowance_covers_is_named(local_grant: Grant) -> None:
    """A wrong zone, an uncountable type and a sixth device are each a sentence; the dead and the covered are none."""
    grant = replace(local_grant, start=NOW - timedelta(days=1))
    fine = tuple(item(f"n{number}") for number in range(5))
    assert uncovered(grant, Inventory((*fine, item("dead", alive=False))), NOW) == []
    found = uncovered(
        grant, Inventory((*fine, item("extra"), item("far", "us-west1-c"), item("odd", kind="v9-8"))), NOW
    )
    assert found == [
        "far (v2-8, on-demand, us-west1-c): no allowance covers it, so it is billed",
        "odd (v9-8, on-demand, us-central1-f): no allowance covers it, so it is billed",
        f"{ROW}: 6 devices are in use, so 1 of them are billed; delete one of extra, n0, n1, n2, n3, n4",
    ]


@pytest.mark.parametrize(("count", "idle"), [(2, "3 devices"), (6, "0 devices")])
def test_what_two_rows_cover_together_is_not_named(local_grant: Grant, count: int, idle: str) -> None:
    """TPUs that a create was permitted for by either of two rows are no reason for the check to fail."""
    grant = replace(two_rows.two_rows(local_grant, devices=5), start=NOW - timedelta(days=1))
    known = Inventory(two_rows.alive(count))
    assert uncovered(grant, known, NOW) == []
    lines = standing(grant, known, fold([], Catalogue({}, {}, {}, {}), NOW), NOW)
    assert f"{grant.allowances[1]}: idle {idle}; used 0 chip-hours" in lines
    (one,) = uncovered(grant, Inventory(two_rows.alive(7)), NOW)
    assert two_rows.CHIPS_ROW in one


def test_each_node_of_a_multislice_is_named(local_grant: Grant) -> None:
    """A multislice that no row covers is named with each of its nodes, since each of them is billed."""
    request = node_name("p", "us-central1-f", "q").queued
    waiting = QueuedView(request, "PROVISIONING", node_ids=("q-0", "q-1"), accelerator_type="v3-8")
    assert uncovered(local_grant, Inventory.of([], [waiting]), NOW) == [
        f"q/q-{number} (v3-8, on-demand, us-central1-f): no allowance covers it, so it is billed" for number in (0, 1)
    ]


def test_after_the_end_everything_alive_is_billed(local_grant: Grant) -> None:
    """At the instant of the end a TPU that was covered is named."""
    assert len(uncovered(local_grant, Inventory((item(),)), local_grant.ends_at)) == 1
    assert uncovered(local_grant, Inventory((item(),)), local_grant.ends_at - timedelta(seconds=1)) == []


def test_standing(local_grant: Grant, catalogue: Catalogue) -> None:
    """What is idle and used stands beside each allowance."""
    usage = fold([opened(), opened("tpu-train-0123456789-2")], catalogue, NOW)
    lines = standing(local_grant, Inventory((item(),), ("us-central2-b",)), usage, NOW)
    hours = usage.by_allowance[ROW].chip_hours
    assert f"{ROW}: idle 4 devices; used {hours:.1f} chip-hours" in lines
    assert any("us-central2-b: idle unknown, its zone did not answer" in line for line in lines)


def test_notice_gives_the_facts_for_an_extension(local_grant: Grant, catalogue: Catalogue) -> None:
    """Under the end of the grant stand use per allowance, runs, TPUs taken by reason, models and the sentence owed."""
    nodes = [f"tpu-train-0123456789-{number}" for number in range(1, 4)]
    reasons = [EndReason.PREEMPTED, EndReason.VANISHED, EndReason.FINISHED]
    events: list[Opened | Closed] = [
        *(opened(node, requested_at=ASKED + timedelta(minutes=number)) for number, node in enumerate(nodes)),
        *(closed(node, reason=reason) for node, reason in zip(nodes, reasons, strict=True)),
        opened("tpu-other-1", run="other", run_id="manual__2"),
        closed("tpu-other-1", reason=EndReason.PREEMPTED),
    ]
    usage = fold(events, catalogue, NOW)
    lines = notice(local_grant, usage, 7, {"digits": 12, "a": 1}).splitlines()
    assert any("2 training run(s)" in line for line in lines)
    assert f"{ROW}: {usage.by_allowance[ROW].chip_hours:.1f} chip-hours" in lines
    assert (
        "3 TPU(s) were taken away (2 preempted, 1 vanished); after 2 of them the run continued on another TPU." in lines
    )
    assert "Models: a (1 version(s)), digits (12 version(s))." in lines
    assert lines[-1].endswith(ACKNOWLEDGEMENT)


def test_a_new_tpu_that_never_came_is_no_rescue(local_grant: Grant, catalogue: Catalogue) -> None:
    """A preemption is survived only if a later TPU of the run was READY; without any it is said that there is none."""
    first, second = "tpu-train-0123456789-1", "tpu-train-0123456789-2"
    never = Closed(second, None, None, EndReason.NEVER_READY)
    again = opened(second, requested_at=ASKED + timedelta(hours=3))
    events: list[Opened | Closed] = [opened(first), closed(first, reason=EndReason.PREEMPTED), again, never]
    assert "after 0 of them the run continued" in notice(local_grant, fold(events, catalogue, NOW), 1)
    quiet = notice(local_grant, fold([opened(), closed()], catalogue, NOW), 1)
    assert "No TPU was taken away" in quiet
    assert "No model has been registered" in quiet
