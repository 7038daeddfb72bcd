# SPDX-License-Identifier: Apache-2.0
"""Lines of the log about a script that prints nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from airflow_tpu.core.run.progress import ProgressLines, pace, position

START = dt.datetime(2026, 11, 28, 23, 50, tzinfo=dt.UTC)
UNTIL = START + dt.timedelta(hours=24)
FULL = {"state": "training", "step": 300, "total_steps": 800, "steps_per_second": 2.5, "eta_seconds": 1200.0}


def at(seconds: float) -> dt.datetime:
    """So long after the silence has begun."""
    return START + dt.timedelta(seconds=seconds)


def test_a_silent_script_shows_where_it_is_and_until_when() -> None:
    """After a minute without a line of its own the log has state, step, speed, what is left and the deadline."""
    lines = ProgressLines(START)
    assert lines.line({**FULL, "last_durable_step": 250}, at(59), UNTIL) == ""
    assert lines.line({**FULL, "step": 304, "last_durable_step": 250}, at(61), UNTIL) == (
        "progress.json: training, step 304 of 800 (38 %), 2.5 steps/s, 20 min left, until 2026-11-29 00:11 UTC, "
        "step 250 is saved; the run is stopped at 2026-11-29 23:50 UTC"
    )


def test_there_is_one_line_a_minute_at_most() -> None:
    """Heartbeats of every two seconds make ten lines in ten minutes."""
    lines = ProgressLines(START)
    found = [lines.line({"step": second}, at(second), UNTIL) for second in range(0, 601, 2)]
    assert len([line for line in found if line]) == 10


def test_a_script_that_prints_needs_no_such_line() -> None:
    """Each line of its own begins the silence anew."""
    lines = ProgressLines(START)
    for second in range(0, 600, 30):
        lines.printed(at(second))
        assert lines.line(FULL, at(second + 29), UNTIL) == ""
    assert lines.line(FULL, at(631), UNTIL)


def test_a_step_that_does_not_move_says_since_when() -> None:
    """The time is that of the first look at this step."""
    lines = ProgressLines(START)
    lines.line({"step": 7}, at(5), UNTIL)
    assert lines.line({"step": 7}, at(400), UNTIL).startswith("progress.json: step 7 since 23:50 UTC; the run")
    assert " since " not in lines.line({"step": 8}, at(500), UNTIL)


@pytest.mark.parametrize(
    "odd",
    [
        None,
        {},
        {"step": "7", "state": 7},
        {"step": True},
        {"step": -1},
        {"step": 10**400},
        {"state": "\x1b[31mred"},
        {"state": " "},
        {"loss": 0.1},
    ],
)
def test_what_tells_no_place_makes_no_line(odd: dict[str, Any] | None) -> None:
    """The file is the script's and may hold anything."""
    assert ProgressLines(START).line(odd, at(600), UNTIL) == ""


def test_odd_figures_are_left_out() -> None:
    """What is no number, or a forecast of a thousand years, is not repeated; a total that is passed neither."""
    odd = {"steps_per_second": "NaN", "eta_seconds": 1e12, "last_durable_step": [1]}
    assert pace(odd, START) == pace({"steps_per_second": float("nan"), "eta_seconds": 10**400}, START) == ""
    assert position({"step": 9, "total_steps": 8}) == "step 9"
    assert position({"state": "x" * 500}) == "x" * 40
