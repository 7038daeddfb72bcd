# SPDX-License-Identifier: Apache-2.0
"""A month of the ledger: which days it has, its Markdown and its chart."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.ledger.daily import OTHERS, SHOWN_DAGS, Daily, Series, daily, span
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened
from airflow_tpu.core.ledger.usage import fold
from airflow_tpu.core.report.chart_svg import chart_svg, in_words
from airflow_tpu.core.report.month import Month, month_daily
from airflow_tpu.core.report.month_text import markdown
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.core.made_ledger import ASKED, NOW, closed, ledgers, opened

MONTH = Month.parse("2026-11")
SVG = "{http://www.w3.org/2000/svg}"


def test_a_month_has_its_days() -> None:
    """February of a leap year ends on the 29th, December in its own year."""
    assert (Month.parse("2028-02").last, Month.parse("2026-12").last) == (date(2028, 2, 29), date(2026, 12, 31))
    assert str(Month.parse("2026-01")) == "2026-01"


def test_the_month_before_is_the_last_that_has_ended() -> None:
    """On New Year's Day it is December, on the last of January it still is."""
    assert [str(Month.before(datetime(2027, 1, day, tzinfo=UTC))) for day in (1, 31)] == ["2026-12", "2026-12"]


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-1", "0000-01", "2026-11-01", "Nov 2026"])
def test_what_is_no_month_is_refused(text: str) -> None:
    """The error names the value and the form it should have."""
    with pytest.raises(ConfigError, match="is not a month"):
        Month.parse(text)


def test_an_incarnation_belongs_to_the_month_it_was_asked_for(catalogue: Catalogue) -> None:
    """It counts whole, and the days it has in the next month are drawn."""
    late = datetime(2026, 11, 30, 23, tzinfo=UTC)
    events: list[Opened | Closed] = [
        opened("a", requested_at=late),
        closed("a", ready_at=late, minutes=120),
        opened("b", requested_at=late + timedelta(hours=2)),
        closed("b", ready_at=late + timedelta(hours=2)),
    ]
    usage = fold(MONTH.selection.of(events), catalogue, NOW + timedelta(days=9))
    drawn = month_daily(usage, MONTH)
    assert [row.opened.node_id for row in usage.rows] == ["a"]
    assert (drawn.days[0], drawn.days[-1], len(drawn.days)) == ("2026-11-01", "2026-12-01", 31)
    assert drawn.series == (Series("tpu_train", (*[Decimal(0)] * 29, Decimal(4), Decimal(4))),)


@settings(max_examples=30)
@given(ledgers())
def test_the_days_of_a_chart_add_up(catalogue: Catalogue, events: list[Opened | Closed]) -> None:
    """Series and days have the same total as the ledger, in whatever names the DAGs are shown."""
    usage = fold(events, catalogue, NOW)
    days = span(date(2026, 7, 1), date(2026, 12, 31))
    found = daily(usage.rows, days, lambda dag: "one" if dag == "nightly" else dag)
    whole = usage.covered.chip_hours + usage.not_covered.chip_hours
    assert sum(series.total for series in found.series) == pytest.approx(whole, rel=Decimal("1e-20"))
    assert sum(found.total(number) for number in range(len(days))) == pytest.approx(whole, rel=Decimal("1e-20"))


def test_the_smallest_dags_share_a_series(catalogue: Catalogue) -> None:
    """There are no more colours than eight; nothing of the rest is lost."""
    events: list[Opened | Closed] = []
    for number in range(12):
        events += [opened(f"n{number}", dag_id=f"dag{number:02}"), closed(f"n{number}", minutes=60 + number)]
    found = daily(fold(events, catalogue, NOW).rows, ["2026-11-27"])
    assert [series.name for series in found.series] == [*(f"dag{n:02}" for n in range(11, 4, -1)), OTHERS]
    assert (len(found.series), found.series[-1].total) == (SHOWN_DAGS + 1, Decimal(4 * (5 * 60 + 10)) / 60)


def test_markdown_of_a_month(catalogue: Catalogue) -> None:
    """Figures, price with date and source, what is not free, the chart, the acknowledgement."""
    events: list[Opened | Closed] = [
        opened(),
        closed(reason=EndReason.PREEMPTED, training_seconds=3600.0, lost_seconds=900.0),
    ]
    text = markdown(fold(events, catalogue, NOW), MONTH, "2026-11.svg")
    for line in (
        "# TPU usage 2026-11",
        "As of 2026-11-28 12:00 UTC. 1 incarnation(s) of a TPU, each counted whole in the month",
        "| list value not paid | USD 6.75 |",
        "| chip-hours lost after the newest safe checkpoint | 1.0000 |",
        "| preemptions | 1 |",
        "![Chip-hours per day, stacked by DAG](2026-11.svg)",
        r"| tpu\_train / manual\_\_1 | 6.0000 | USD 6.75 |",
        "| v2-8 on-demand, us-central1-f | 6.0000 | USD 6.75 | 1.125 | 2026-11-27 |",
        "| external IPv4 addresses, on-demand | 1.5000 | address-hours | USD 0.0075 |",
        "and not free: storage over time",
        "Research supported with Cloud TPUs",
    ):
        assert line in text


def test_markdown_says_unknown(catalogue: Catalogue) -> None:
    """No list price and no record of what was lost: the words say so."""
    events: list[Opened | Closed] = [
        opened(zone="us-east1-d", accelerator_type="v3-8", tier=Tier.SPOT),
        closed(lost_seconds=None),
    ]
    text = markdown(fold(events, catalogue, NOW), MONTH)
    assert "| list value not paid | unknown |" in text
    assert "| chip-hours lost after the newest safe checkpoint | 0, unknown for 1 TPU(s) |" in text
    assert "![" not in text


@settings(max_examples=50)
@given(st.text(min_size=1), st.text(min_size=1))
def test_no_name_breaks_a_table(catalogue: Catalogue, dag_id: str, reason: str) -> None:
    """Whatever a DAG or a reason is called, each row keeps its columns and no markup or line break gets in."""
    usage = fold([opened(dag_id=dag_id, allowance=None, paid_reason=reason), closed()], catalogue, NOW)
    for line in markdown(usage, MONTH).splitlines():
        bare = line.replace("\\\\", "").replace("\\|", "")
        assert bare.count("|") in (0, 3, 4, 6, 7)
        assert not bare.startswith("|") or bare.endswith("|")


def test_an_empty_month_is_reported(catalogue: Catalogue) -> None:
    """A month without a TPU has a report and a chart, with nothing in them."""
    usage = fold([], catalogue, NOW)
    assert "## By DAG\n\nnothing\n" in markdown(usage, MONTH)
    root = ET.fromstring(chart_svg(month_daily(usage, MONTH), "November"))
    assert "Totals: none." in (root.findtext(f"{SVG}desc") or "")


def bars(text: str) -> list[ET.Element]:
    """The bars of a chart; squares of the legend have no title."""
    return [rect for rect in ET.fromstring(text).iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]


def test_the_chart_is_to_scale() -> None:
    """Bars stand on one another, and their heights are as their chip-hours."""
    drawn = Daily(
        ("2026-11-01", "2026-11-02"), (Series("a", (Decimal(30), Decimal(0))), Series("b", (Decimal(10), Decimal(40))))
    )
    below, above, alone = bars(chart_svg(drawn, "t"))
    heights = [float(bar.attrib["height"]) for bar in (below, above, alone)]
    assert heights == pytest.approx([heights[1] * 3, heights[1], heights[1] * 4], abs=0.05)
    assert float(above.attrib["y"]) + heights[1] == pytest.approx(float(below.attrib["y"]), abs=0.02)
    assert float(alone.attrib["x"]) > float(above.attrib["x"])


@settings(max_examples=50)
@given(st.lists(st.decimals(0, 10**7, places=6), min_size=1, max_size=31))
def test_every_chart_fits_its_frame(values: list[Decimal]) -> None:
    """From a millionth of a chip-hour to millions: nothing is drawn outside, and the scale has few lines."""
    days = span(date(2026, 11, 1), date(2026, 11, len(values)) if len(values) < 31 else date(2026, 12, 1))
    text = chart_svg(Daily(days, (Series("a", tuple(values)),)), "t")
    for bar in bars(text):
        assert 15.9 <= float(bar.attrib["y"]) <= 276.1
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) <= 276.1
    assert 2 <= text.count('class="grid"') <= 6


def test_the_chart_is_read_out_and_harmless() -> None:
    """It has a title and a description for screen readers, and a name is never markup."""
    drawn = Daily(("2026-11-27",), (Series('<script x="1">&', (Decimal(2),)),))
    text = chart_svg(drawn, "a < b")
    root = ET.fromstring(text)
    assert (root.attrib["role"], root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")) == (
        "img",
        "a < b",
        in_words(drawn),
    )
    assert "<script" not in text
    assert "prefers-color-scheme:dark" in text
    assert f"{ASKED:%Y-%m-%d}" in in_words(drawn)
