# SPDX-License-Identifier: Apache-2.0
"""What the ledger tells: days, list value, what is billed, preemptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu.core.ledger.daily import OTHERS
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.tpu.identity import KnownAirflow
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.ui.activity import billed_table, chart, preemption_table, value_table
from airflow_tpu.ui.parts import HIDDEN, Reader
from tests.airflow_tpu.identities import AIRFLOW, OTHER_AIRFLOW, OWN
from tests.airflow_tpu.ui.made import ALL, CATALOGUE, HOUR, KEY, NOW, closed, opened

DAY = 24 * HOUR


def usage(*spans: tuple[RunKey, float, float], **changes: Any) -> Usage:
    """A ledger of ended incarnations: key, hours before now it was asked for, hours it was READY."""
    events = [opened(key, number, NOW - ago * HOUR, **changes) for number, (key, ago, _) in enumerate(spans, start=1)]
    ends = [closed(event, hours) for event, (_, _, hours) in zip(events, spans, strict=True)]
    return fold([*events, *ends], CATALOGUE, NOW)


def texts(data: dict[str, Any]) -> list[list[str]]:
    """A table's cells."""
    return [[cell["text"] for cell in cells] for cells in data["rows"]]


def drawn(ledger: Usage | None, reader: Reader = ALL) -> dict[str, Any]:
    """The chart of a ledger that can be read."""
    data = chart(ledger, reader)
    assert data is not None
    return data


def test_hours_are_split_at_midnight_and_gaps_are_zero() -> None:
    """An incarnation over midnight counts on both days, and each day up to today has a value."""
    data = drawn(usage((KEY, 62, 4)))
    assert data["days"] == ["2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20"]
    assert data["series"] == [{"name": "tpu_train", "values": [8.0, 8.0, 0.0, 0.0]}]
    assert texts(data["table"]) == [["2026-11-18", "8.0000"], ["2026-11-17", "8.0000"]]


def test_the_table_behind_the_chart_says_the_same() -> None:
    """Sums of the chart's series and of the ledger are equal."""
    ledger = usage((KEY, 30, 3), (RunKey(AIRFLOW, "secret_dag", "r"), 50, 5), (KEY, 100, 7.5))
    drawn_sum = sum(value for series in drawn(ledger)["series"] for value in series["values"])
    assert drawn_sum == float(ledger.covered.chip_hours)


def test_many_dags_share_one_colour() -> None:
    """The seven largest DAGs have a series each, the rest one together, and nothing is lost."""
    spans = [(RunKey(AIRFLOW, f"dag_{number}", "r"), 20.0, float(number + 1)) for number in range(12)]
    names = {f"dag_{number}" for number in range(12)}
    data = drawn(usage(*spans), Reader(names))
    assert [series["name"] for series in data["series"]] == [*(f"dag_{n}" for n in range(11, 4, -1)), OTHERS]
    assert sum(sum(series["values"]) for series in data["series"]) == 4 * sum(range(1, 13))


def test_a_hidden_dag_counts_without_its_name() -> None:
    """Chip-hours of a DAG that the reader may not see are in the sums, under no name."""
    data = drawn(usage((RunKey(AIRFLOW, "secret_dag", "r"), 20, 1)), Reader(set()))
    assert [series["name"] for series in data["series"]] == [HIDDEN]


def test_an_old_ledger_shows_its_last_days() -> None:
    """The chart has at most sixty days, the last of them today."""
    days = drawn(usage((KEY, 24 * 200, 5), (KEY, 2, 1)))["days"]
    assert (len(days), days[-1]) == (60, "2026-11-20")


def test_an_unreadable_ledger_is_unknown() -> None:
    """Without a ledger there is no chart, and the tables say unknown."""
    assert chart(None, ALL) is None
    tables = (value_table(None), billed_table(None), preemption_table(None, ALL, OWN))
    assert {table["empty"] for table in tables} == {"unknown"}


def test_the_list_value_has_price_date_and_source() -> None:
    """Each line names the price, the day it was read and where."""
    price = CATALOGUE.price("v2-8", "us-central1-f", Tier.SPOT)
    assert price is not None
    ((kind, hours, each, value, day, source),) = texts(value_table(usage((KEY, 20, 2))))
    assert (kind, hours, day, source) == ("v2-8 spot, us-central1-f", "8.0000", price.date, price.source)
    assert each == f"{price.usd_per_chip_hour.normalize():f}"
    assert value.startswith("USD ")


def test_a_price_that_nobody_publishes_is_unknown() -> None:
    """Chip-hours without a list price have no value, and the total says for how many."""
    data = value_table(usage((KEY, 20, 2), zone="europe-north1-z"))
    assert [cells[2:5] for cells in texts(data)] == [["unknown", "unknown", "unknown"]]
    assert data["more"] == "total: 8.0000 chip-hours, their value is unknown"


def test_what_is_not_covered_is_billed_and_has_no_value() -> None:
    """A paid TPU stands under *not free* with its reason, and not among what was not paid."""
    ledger = usage((KEY, 20, 2), allowance=None, paid_reason="deadline")
    (what, amount, unit, cost, note), *_ = texts(billed_table(ledger))
    assert (what, amount, unit) == ("TPU spot v2-8, us-central1-f", "8.0000", "chip-hours")
    assert (cost[:4], note) == ("USD ", "outside the grant: deadline")
    assert texts(value_table(ledger)) == []


def test_a_billed_line_of_unknown_price_says_so() -> None:
    """Artifacts cost something that is not known here; the line is there and its price is unknown, not zero."""
    event = opened(asked=NOW - 5 * HOUR)
    ledger = fold([event, closed(event, 1, size=3 * 1024**3)], CATALOGUE, NOW)
    lines = [line[:4] for line in texts(billed_table(ledger))]
    assert ["artifacts written to the bucket", "3.0000", "GiB", "unknown"] in lines


def test_what_is_not_measured_is_always_said() -> None:
    """An empty ledger still names what is billed and not measured."""
    assert "Cloud NAT" in billed_table(usage())["more"]


def test_preemptions_are_listed_newest_first() -> None:
    """Only incarnations that Google took back are listed, at most ten, and the rest is counted."""
    events = [opened(number=number, asked=NOW - number * DAY) for number in range(1, 15)]
    ends = [closed(event, 2, EndReason.PREEMPTED) for event in events[1:]]
    data = preemption_table(fold([*events, *ends, closed(events[0])], CATALOGUE, NOW), ALL, OWN)
    assert len(data["rows"]) == 10
    assert data["more"] == "and 3 earlier ones"
    assert texts(data)[0][:2] == ["2026-11-18 14:00 UTC", KEY.node_id(2)]
    assert {cells[4] for cells in texts(data)} == {"2:00:00"}


@pytest.mark.parametrize(
    ("address", "href"),
    [
        ("https://prod.example.com/af/", "https://prod.example.com/af/dags/tpu_train/runs/manual__2026-11-20"),
        ("", None),
        ("javascript:alert(1)//", None),
    ],
)
def test_a_run_of_another_airflow_leads_there_or_nowhere(address: str, href: str | None) -> None:
    """Two Airflows of one bucket and prefix have DAGs of equal ids: the page here is not that of the other's run."""
    event = opened(RunKey(OTHER_AIRFLOW, "tpu_train", "manual__2026-11-20"), asked=NOW - DAY)
    known = KnownAirflow(OTHER_AIRFLOW, "prod", address, NOW)
    ledger = fold([event, closed(event, 2, EndReason.PREEMPTED)], CATALOGUE, NOW)
    run = preemption_table(ledger, ALL, replace(OWN, known={OTHER_AIRFLOW: known}))["rows"][0][-1]
    assert run.get("href") == href
    assert run["note"].startswith("manual__2026-11-20, of Airflow 'prod'")
    assert preemption_table(ledger, Reader(()), OWN)["rows"][0][-1] == {"text": HIDDEN}


def test_a_run_of_an_unknown_airflow_leads_nowhere() -> None:
    """A record that names no Airflow, or one that the bucket does not know, is not taken for one of this one."""
    for airflow, words in (("", "an unknown Airflow"), (OTHER_AIRFLOW, f"does not know ({OTHER_AIRFLOW})")):
        event = opened(asked=NOW - DAY, airflow=airflow)
        run = preemption_table(fold([event, closed(event, 2, EndReason.PREEMPTED)], CATALOGUE, NOW), ALL, OWN)
        assert "href" not in run["rows"][0][-1]
        assert words in run["rows"][0][-1]["note"]


def test_a_preemption_says_what_it_has_cost() -> None:
    """Lost chip-hours stand in their column, and are unknown where they were not recorded."""
    event = opened(asked=NOW - DAY)
    end = closed(event, 2, EndReason.PREEMPTED)
    lost = [
        texts(preemption_table(fold([event, replace(end, lost_seconds=seconds)], CATALOGUE, NOW), ALL, OWN))[0][5]
        for seconds in (1800.0, 0.0, None)
    ]
    assert lost == ["2.0000", "0", "unknown"]
