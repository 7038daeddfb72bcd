# SPDX-License-Identifier: Apache-2.0
"""What an interruption has cost, in one line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.catalogue.catalogue import Price
from airflow_tpu.core.run.interruption import Interruption, Reached, SilenceLimit, lost_seconds
from airflow_tpu.core.run.messages import Heartbeat
from airflow_tpu.core.run.trigger_context import error_event, raise_for
from airflow_tpu.errors import TPUPreempted

START = dt.datetime(2026, 11, 28, 3, 0, tzinfo=dt.UTC)
END = START + dt.timedelta(minutes=10)


def test_line_says_why_how_far_what_is_safe_and_what_is_lost() -> None:
    """One line has the reason, the step reached, the safe step, the lost seconds, and which loss of how many it is."""
    line = str(Interruption("TPUPreempted", 3, 20, step=120, safe_step=100, lost_seconds=41.6))
    assert line == "interruption 3 of 20 allowed (TPUPreempted): step 120 reached, step 100 is safe, 42 s of work lost"


def test_silence_limit_says_what_waiting_costs() -> None:
    """A TPU that does not answer is held: its chips, and what an hour of them is worth where a price is published."""
    price = Price(Decimal("1.125"), "cloud.google.com", "2026-11-01")
    allowed = SilenceLimit.with_cost(7, 4, price)
    assert allowed.limit == dt.timedelta(minutes=7)
    assert "4 chip(s) are held meanwhile, at 4.50 USD an hour by the price list of 2026-11-01" in allowed.cost
    assert "a price that is not published" in SilenceLimit.with_cost(7, 4, None).cost


def test_line_says_what_nobody_knows() -> None:
    """A script without progress and without checkpoints has lost work, of unknown amount."""
    line = str(Interruption("HostLost", 1, 0))
    assert line == "interruption 1 of 0 allowed (HostLost): step not known, no checkpoint is safe, lost work not known"


@pytest.mark.parametrize(
    ("started", "safe", "lost"),
    [
        (START, None, 600.0),
        (START, END - dt.timedelta(seconds=30), 30.0),
        (START, START - dt.timedelta(hours=1), 600.0),
        (None, END - dt.timedelta(seconds=30), 30.0),
        (START, END + dt.timedelta(seconds=1), 0.0),
        (None, None, None),
    ],
)
def test_work_lost_is_counted_from_the_newest_safe_point(
    started: dt.datetime | None, safe: dt.datetime | None, lost: float | None
) -> None:
    """What an earlier attempt had saved does not make this attempt's loss larger than this attempt."""
    assert lost_seconds(END, started, safe.timestamp() if safe else None) == lost


def test_last_signs_of_life_add_up() -> None:
    """The newest number of each kind stays, and a value that is no number does not count."""
    beats: list[tuple[Any, Any]] = [
        ({"step": 7}, {"last_step": 5, "last_at": 100.5}),
        (None, None),
        ({"step": "eight"}, {"last_step": None}),
        ({"step": 9, "loss": 0.1}, {"last_step": True}),
    ]
    reached = Reached()
    for progress, mirror in beats:
        reached = reached.after(Heartbeat(0, progress, mirror))
    assert reached == Reached(step=9, safe_step=5, safe_at=100.5)
    newer = reached.after(Heartbeat(0, None, {"last_step": None, "last_at": 107.5}))
    assert newer == Reached(step=9, safe_step=None, safe_at=107.5)  # never the step of one and the time of another
    assert json_form.from_json(Reached, json_form.to_json(reached)) == reached
    assert json_form.from_json(Reached, {}) == Reached()


@pytest.mark.parametrize("at", [START, None])
def test_instant_of_a_loss_crosses_the_trigger(at: dt.datetime | None) -> None:
    """The task learns when the trigger saw the loss, however late it resumes."""
    with pytest.raises(TPUPreempted) as caught:
        raise_for(error_event(TPUPreempted("gone", at)))
    assert caught.value.at == at
