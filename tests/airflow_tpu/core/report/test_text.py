# SPDX-License-Identifier: Apache-2.0
"""The report as a person and as a program reads it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.ledger.events import Closed, Opened
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.report.month import Month
from airflow_tpu.core.report.month_text import markdown
from airflow_tpu.core.report.table import chip_hours, duration, shorten, table, usd
from airflow_tpu.core.report.text import WIDTH, text_report
from airflow_tpu.core.report.usage_json import LIMIT, json_summary
from airflow_tpu.core.tpu.spec import Tier
from tests.airflow_tpu.core.made_ledger import ASKED, closed, ledgers, opened

NOW = ASKED + timedelta(hours=3)
OPENED = opened()
CLOSED = closed(
    ready_at=ASKED + timedelta(minutes=1),
    minutes=12 + 10 / 60,
    training_seconds=600.0,
    artifact_bytes=12_000_000,
    lost_seconds=36.0,
)
EXPECTED = """\
TPU USAGE   2026-11-27 15:00 UTC   1 incarnation(s) of a TPU
grant of local-project: 3319.4 days left, until 2035-12-30 00:00 UTC
====================================================================================================

incarnation             type            end       READY for  chip-hours    idle    lost
tpu-train-0123456789-1  v2-8 on-demand  finished    0:12:10      0.8111  0.1444  0.0400
idle: 0.1444 chip-hours READY without training
lost: 0.0400 chip-hours trained after the newest checkpoint that was safe

COVERED BY THE GRANT
  5 on-demand v2-8 devices in us-central1-f  0.8111  chip-hours
  total                                      0.8111  chip-hours

LIST VALUE NOT PAID (of the TPUs that the grant covers)
  type and zone                  chip-hours  USD/chip-hour       value  price of
  v2-8 on-demand, us-central1-f      0.8111          1.125  USD 0.9125  2026-11-27
  total                              0.8111                 USD 0.9125
  prices: skypilot-org/skypilot-catalog catalogs/v8/gcp/vms.csv @006059e

NOT FREE
  external IPv4 addresses, on-demand  0.2028  address-hours  USD 0.0010
      0.005/h, Google network pricing, 2026-10-16
  artifacts written to the bucket     0.0112  GiB               unknown
      billed by storage class, for as long as they are kept
  known: USD 0.0010, and 1 item(s) of unknown price
  not measured here: storage over time (soft-deleted and noncurrent bytes too) and its operations,
  traffic between regions or out of Google, the bytes and addresses of Cloud NAT, extra disks and
  snapshots, logging, the machines that Airflow runs on or Cloud Composer

Research supported with Cloud TPUs from Google's TPU Research Cloud (TRC)."""


def many(count: int, catalogue: Catalogue) -> Usage:
    """A ledger of many incarnations, each of a DAG of its own with the longest id that Airflow allows."""
    events: list[Opened | Closed] = []
    for number in range(count):
        node_id, dag_id = f"{'x' * 50}-{number:06}", f"{number}{'학' * 240}"
        reason = f"reason {number}"
        events.append(replace(OPENED, node_id=node_id, dag_id=dag_id, allowance=None, paid_reason=reason))
        events.append(replace(CLOSED, node_id=node_id))
    return fold(events, catalogue, NOW)


def test_the_report_of_one_run(catalogue: Catalogue, local_grant: Grant) -> None:
    """Covered, list value and what is not free stand apart, with price, date and source."""
    assert text_report(fold([OPENED, CLOSED], catalogue, NOW), local_grant) == EXPECTED


def test_it_fits_a_task_log(catalogue: Catalogue, local_grant: Grant) -> None:
    """No line is wider than 100 columns, and a long ledger is cut."""
    paid = replace(
        OPENED, node_id="y" * 63, accelerator_type="v5litepod-64", tier=Tier.PREEMPTIBLE, paid_reason="z" * 500
    )
    for usage in (many(500, catalogue), fold([paid], catalogue, NOW), fold([OPENED, CLOSED], catalogue, NOW)):
        assert max(map(len, text_report(usage, local_grant).splitlines())) <= WIDTH
    assert "and 460 earlier ones" in text_report(many(500, catalogue))


def test_it_never_says_zero_dollars(catalogue: Catalogue) -> None:
    """Seconds of an address cost less than a cent, and still not nothing."""
    short = replace(CLOSED, ended_at=ASKED + timedelta(minutes=1, milliseconds=5), artifact_bytes=0)
    text = text_report(fold([OPENED, short], catalogue, NOW))
    assert "< USD 0.0001" in text
    assert re.search(r"(?<![\d.])0(\.0*)? USD|USD 0(\.0*)?(?![\d.])", text) is None


ZERO_DOLLARS = re.compile(r"(?<![\d.])0(\.0*)? ?(USD|dollars)|(USD|\$) ?0(\.0*)?(?![\d.])", re.IGNORECASE)


@settings(max_examples=50)
@given(ledgers())
def test_no_report_says_zero_dollars_of_anything(catalogue: Catalogue, events: list[Opened | Closed]) -> None:
    """For every ledger, in the log, in Markdown and in JSON: unknown is unknown, and little is not nothing."""
    usage = fold(events, catalogue, NOW)
    for text in (text_report(usage), markdown(usage, Month.parse("2026-11"))):
        assert ZERO_DOLLARS.search(text) is None
    summary = json_summary(usage)
    assert all(line["usd"] is None or line["usd"] > 0 for line in summary["not_free"])
    billed = any(row.hours and (row.opened.external_ips or not row.covered) for row in usage.rows)
    assert bool(summary["not_free"]) or not billed


def test_the_pattern_finds_zero_dollars() -> None:
    """The search above would see what it is looking for."""
    assert all(ZERO_DOLLARS.search(text) for text in ("0 USD", "USD 0", "USD 0.00", "costs 0.00 USD.", "$0"))
    assert not any(ZERO_DOLLARS.search(text) for text in ("10 USD", "USD 0.0010", "< USD 0.0001", "USD 10"))


def test_an_unknown_loss_is_said(catalogue: Catalogue) -> None:
    """An unknown loss is a question mark, not a zero."""
    text = text_report(fold([OPENED, replace(CLOSED, lost_seconds=None)], catalogue, NOW))
    assert "?: how much was lost with 1 incarnation(s) is unknown" in text
    assert "lost: " not in text


def test_a_running_tpu_is_shown_as_running(catalogue: Catalogue) -> None:
    """Its time is marked as an upper bound."""
    text = text_report(fold([OPENED], catalogue, NOW))
    assert "running   ~3:00:00" in text
    assert "~ at most" in text


def test_an_unknown_price_is_said(catalogue: Catalogue) -> None:
    """A type without a list price is unknown, in the line and in the total."""
    opened = replace(OPENED, accelerator_type="v3-8", zone="us-east1-d", tier=Tier.SPOT)
    text = text_report(fold([opened, CLOSED], catalogue, NOW))
    assert "0.8111 chip-hours of these have no published list price" in text
    assert "USD/chip-hour    value" in text
    summary = json_summary(fold([opened, CLOSED], catalogue, NOW))
    assert summary["covered"]["list_value_usd"] is None


@pytest.mark.parametrize(("days", "phrase"), [(-5, "ENDS SOON"), (-8, "days left"), (1, "HAS ENDED")])
def test_the_term_is_counted_down(catalogue: Catalogue, local_grant: Grant, days: int, phrase: str) -> None:
    """A grant that ends within a week is a warning."""
    usage = fold([OPENED, CLOSED], catalogue, local_grant.ends_at + timedelta(days=days))
    assert phrase in text_report(usage, local_grant)


def test_an_empty_ledger_is_reported(catalogue: Catalogue) -> None:
    """A run that never asked for a TPU says so."""
    assert "no TPU was asked for" in text_report(fold([], catalogue, NOW))


def test_the_summary_of_one_run(catalogue: Catalogue, local_grant: Grant) -> None:
    """Programs read numbers, and null for what is not known."""
    summary = json_summary(fold([OPENED, CLOSED], catalogue, NOW), local_grant)
    total = {"chip_hours": 0.811111, "list_value_usd": 0.9125, "chip_hours_of_unknown_price": 0.0}
    assert summary["covered"] == summary["by_dag"]["tpu_train"] == summary["by_day"]["2026-11-27"] == total
    assert [line["usd"] for line in summary["not_free"]] == [0.001014, None]
    assert summary["incarnations"][0]["node_id"] == OPENED.node_id
    assert summary["grant"]["ends_at"] == "2035-12-30T00:00:00+00:00"


@pytest.mark.parametrize("count", [0, 1, 500])
def test_the_summary_stays_small(catalogue: Catalogue, count: int) -> None:
    """Under 48 kB whatever the ledger holds, valid JSON, and it says what was left out."""
    summary = json_summary(many(count, catalogue))
    assert len(json.dumps(summary, allow_nan=False)) < LIMIT
    assert len(summary["incarnations"]) + summary["left_out"]["incarnations"] == count
    assert len(summary["by_dag"]) + summary["left_out"]["by_dag"] == count


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (Decimal(0), "none"),
        (Decimal("0.00001"), "< USD 0.0001"),
        (Decimal("0.5"), "USD 0.5000"),
        (Decimal("1234.5"), "USD 1,234.50"),
    ],
)
def test_dollars(value: Decimal | None, text: str) -> None:
    """Unknown, none and very little are three different things."""
    assert usd(value) == text


def test_numbers_for_people() -> None:
    """Small chip-hours keep their digits, durations read as hours, minutes and seconds."""
    assert [chip_hours(Decimal(value)) for value in ("0", "0.00001", "1.5", "1234.567")] == [
        "0",
        "< 0.0001",
        "1.5000",
        "1,234.57",
    ]
    assert duration(Decimal("27.5025")) == "27:30:09"


def test_tables_are_aligned() -> None:
    """Columns have the width of their longest cell; long cells lose their middle, not their end."""
    assert table([("a", "10"), ("abc", "9")], right=(1,), indent="") == ["a    10", "abc   9"]
    assert shorten("tpu-train-0123456789-1", 15) == "tpu-tr...6789-1"
