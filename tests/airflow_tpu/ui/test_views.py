# SPDX-License-Identifier: Apache-2.0
"""The page as a whole: its short figures, and what it says of what it does not know."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
from airflow_tpu.ui.parts import Reader
from airflow_tpu.ui.snapshot import Snapshot
from airflow_tpu.ui.views import page
from tests.airflow_tpu.identities import AIRFLOW
from tests.airflow_tpu.ui.made import ALL, HOUR, KEY, NOW, ZONE, closed, grant, node, opened, record, snapshot

NOTHING_KNOWN = Snapshot(NOW, problems={"grant": "no such file", "live TPUs": "403"})


def tiles(known: Snapshot) -> dict[str, tuple[str, str]]:
    """Value and tone of the short figures, by label."""
    return {tile["label"]: (tile["value"], tile["tone"]) for tile in page(known, ALL)["tiles"]}


def test_nothing_known_is_nothing_claimed() -> None:
    """If nothing could be read every figure is unknown, and not one zero is on the page."""
    data = page(NOTHING_KNOWN, ALL)
    assert {value for value, _ in tiles(NOTHING_KNOWN).values()} == {"unknown"}
    assert (data["gauges"], data["chart"]) == (None, None)
    assert {part["part"] for part in data["problems"]} == {"grant", "live TPUs"}
    assert "0" not in json.dumps({**data, "as_of": "", "problems": []}).replace("403", "")


@pytest.mark.parametrize(
    ("changes", "value", "tone"),
    [
        ({}, "39.5", ""),
        ({"days": 57}, "6.5", "warn"),
        ({"days": 30}, "ended", "bad"),
        ({"start": "2026-12-01"}, "not begun", "warn"),
    ],
)
def test_the_days_that_are_left(changes: dict[str, Any], value: str, tone: str) -> None:
    """Days are counted to the end of the term, and the last week is a warning."""
    assert tiles(snapshot(grant=grant(**changes)))["Days left"] == (value, tone)


def test_the_figures_of_a_quiet_project() -> None:
    """A project where all is well shows true zeros, and what a covered run was worth."""
    event = opened()
    found = tiles(snapshot(events=[event, closed(event)]))
    assert found["TPUs now"] == ("0", "")
    assert found["Orphans"] == ("0", "")
    assert found["Preemptions"] == ("0", "")
    # It had no external address, and nobody knows whether a NAT served it.
    assert found["Not free"] == ("unknown", "unknown")
    assert tiles(snapshot())["Not free"][0] == "nothing found"
    assert found["Chip-hours covered"][0] == "4.0000"
    assert found["List value not paid"][0].startswith("USD ")


def test_idle_and_lost_stand_apart() -> None:
    """Hours that trained nothing, or for nothing, are shown beside the sum, and so is what is unknown."""
    event, other = opened(), opened(number=2)
    end = replace(closed(event, 2, EndReason.PREEMPTED), training_seconds=3600.0, lost_seconds=900.0)
    unknown = replace(closed(other, 1, EndReason.VANISHED), lost_seconds=None)
    data = page(snapshot(events=[event, end, other, unknown]), ALL)
    tile = next(tile for tile in data["tiles"] if tile["label"] == "Chip-hours covered")
    assert (tile["value"], tile["note"].split(", ")) == (
        "12.00",
        ["4.0000 idle", "1.0000 lost", "loss unknown for 1 TPU(s)"],
    )


def test_trouble_has_a_tone() -> None:
    """A billed TPU and an orphan colour their figures."""
    found = tiles(snapshot([node("billed", accelerator_type="v3-8"), node(KEY.node_id(1), KEY)]))
    assert found["TPUs now"] == ("2", "warn")
    assert found["Orphans"] == ("1", "bad")


def test_a_silent_zone_makes_counts_a_minimum() -> None:
    """With a zone that did not answer the page counts *or more*."""
    found = tiles(snapshot(project=ProjectSnapshot((node("one"),), (), (ZONE,))))
    assert (found["TPUs now"][0], found["Orphans"][0]) == ("1 or more", "0 or more")


def test_unknown_prices_are_no_zero_dollars() -> None:
    """A ledger with unknown prices only has an unknown value, and an unknown bill."""
    event = opened(zone="europe-north1-z", asked=NOW - 5 * HOUR)
    found = tiles(snapshot(events=[event, closed(event, size=1024**3)]))
    assert found["List value not paid"] == ("unknown", "unknown")
    assert found["Not free"] == ("unknown", "unknown")


def test_the_page_is_plain_json() -> None:
    """The page is finite numbers and text, whatever is in names."""
    key = RunKey(AIRFLOW, "<script>alert(1)</script>", "manual__&'\"")
    event = opened(key)
    known = snapshot([node("one")], [event, closed(event)], [record(key)])
    assert json.loads(json.dumps(page(known, Reader({key.dag_id})), allow_nan=False))["project"] == "my-project"
