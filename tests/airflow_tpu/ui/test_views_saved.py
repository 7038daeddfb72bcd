# SPDX-License-Identifier: Apache-2.0
"""The page over the ledger that a soak has left."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, event_to_bytes
from airflow_tpu.core.ledger.usage import fold
from airflow_tpu.core.report.month import Month
from airflow_tpu.core.report.month_files import report_files
from airflow_tpu.core.report.text import text_report
from airflow_tpu.core.report.usage_json import LIMIT, json_summary
from airflow_tpu.ui.parts import Reader
from airflow_tpu.ui.views import page
from tests.airflow_tpu.ui.made import CATALOGUE, NOW, snapshot
from tests.airflow_tpu.ui.saved import SOAK, chosen, moved, saved_events

EVENTS = list(moved(saved_events(chosen()), NOW))


def test_everything_of_a_real_ledger_is_on_the_page() -> None:
    """Its DAGs, its preemptions and its chip-hours are there, and none of the figures is unknown."""
    usage = fold(EVENTS, CATALOGUE, NOW)
    dags = {event.dag_id for event in EVENTS if isinstance(event, Opened)}
    data = page(snapshot(usage=usage), Reader(dags, everything=True))
    taken = sum(row.state == EndReason.PREEMPTED for row in usage.rows)
    tiles = {tile["label"]: tile["value"] for tile in data["tiles"]}
    assert tiles["Preemptions"] == str(taken)
    assert "unknown" not in {tiles["Chip-hours covered"], tiles["List value not paid"]}
    drawn = sum(value for series in data["chart"]["series"] for value in series["values"])
    assert round(drawn, 4) == round(float(sum(row.chip_hours for row in usage.rows)), 4)
    assert {series["name"] for series in data["chart"]["series"]} <= dags | {"other DAGs"}


def test_every_output_takes_a_real_ledger() -> None:
    """Task log, XCom, and the files of its month."""
    usage = fold(EVENTS, CATALOGUE, NOW)
    assert "NOT FREE" in text_report(usage)
    assert len(json.dumps(json_summary(usage), allow_nan=False)) < LIMIT
    assert [file.name for file in report_files(usage, Month.parse("2026-11"))] == [
        "2026-11.svg",
        "2026-11.parquet",
        "2026-11.md",
    ]


def test_the_soak_was_one() -> None:
    """Some eighty runs: TPUs taken away with lost work, gone, failed and finished, each with its end."""
    events = saved_events(SOAK)
    ends = [event for event in events if isinstance(event, Closed)]
    assert len(ends) * 2 == len(events)
    assert len({event.run_id for event in events if isinstance(event, Opened)}) > 75
    assert {event.end_reason for event in ends} >= {EndReason.PREEMPTED, EndReason.VANISHED, EndReason.FINISHED}
    assert any(event.lost_seconds for event in ends if event.end_reason is EndReason.PREEMPTED)


def test_a_folder_of_a_bucket_is_read_too(tmp_path: Path) -> None:
    """The objects as the bucket holds them, at whatever depth, are the same ledger as the lines of the file."""
    events = saved_events(SOAK)
    for event in events:
        path = tmp_path / "trc" / event.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(event_to_bytes(event))
    (tmp_path / "trc" / "README.txt").write_text("no event")
    assert sorted(map(repr, saved_events(tmp_path))) == sorted(map(repr, events))


def test_a_ledger_can_be_moved_in_time() -> None:
    """Its last moment is the one that was asked for, and every duration is kept."""
    events = saved_events(SOAK)
    later = list(moved(events, NOW + dt.timedelta(days=1)))
    before, after = (fold(some, CATALOGUE, NOW + dt.timedelta(days=99)) for some in (events, later))
    assert [row.chip_hours for row in after.rows] == [row.chip_hours for row in before.rows]
    assert max(row.ends_at for row in after.rows if row.ends_at) == NOW + dt.timedelta(days=1)
