"""The daily look at the grant: notices on the days Google mails, and everything alive that is billed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_tpu.core.catalogue import Catalogue
from airflow_tpu.core.grant import Grant, Inventory, InventoryItem
from airflow_tpu.core.grant_watch import due_stage, notice, standing, uncovered
from airflow_tpu.core.tpu import Tier
from airflow_tpu.core.usage import fold
from tests.unit.core.made_ledger import ROW, opened

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def item(name: str = "n", zone: str = "us-central1-f", alive: bool = True, kind: str = "v2-8") -> InventoryItem:
    """An on-demand TPU of somebody."""
    return InventoryItem(f"projects/p/locations/{zone}/nodes/{name}", kind, Tier.ON_DEMAND, zone, None, alive)


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
        "far (v2-8, on-demand, us-west1-c): no allowance covers it",
        "odd (v9-8, on-demand, us-central1-f): no allowance covers it",
        f"6 devices are alive, the grant has {ROW}",
    ]


def test_after_the_end_everything_alive_is_billed(local_grant: Grant) -> None:
    """At the instant of the end a TPU that was covered is named."""
    assert len(uncovered(local_grant, Inventory((item(),)), local_grant.ends_at)) == 1
    assert uncovered(local_grant, Inventory((item(),)), local_grant.ends_at - timedelta(seconds=1)) == []


def test_standing_and_extension_text(local_grant: Grant, catalogue: Catalogue) -> None:
    """What is idle and used stands beside each allowance; the request counts runs and replaced TPUs."""
    usage = fold([opened(), opened("tpu-train-0123456789-2")], catalogue, NOW)
    lines = standing(local_grant, Inventory((item(),), ("us-central2-b",)), usage, NOW)
    hours = usage.by_allowance[ROW].chip_hours
    assert f"{ROW}: idle 4 devices; used {hours:.1f} chip-hours" in lines
    assert any("us-central2-b: idle unknown, its zone did not answer" in line for line in lines)
    text = notice(local_grant, usage, 7)
    assert "1 training run(s)" in text
    assert "1 TPU(s) were replaced after a loss" in text
    assert f"{ROW}: {hours:.1f} chip-hours" in text
