# SPDX-License-Identifier: Apache-2.0
"""Reading many objects: several at once, in order, and not in silence."""

from __future__ import annotations

import logging
import threading
from itertools import count

import pytest

from airflow_tpu.clients.clock import Clock
from airflow_tpu.stores.parallel_reads import READERS, read_many

NAMES = [f"n{number}" for number in range(100)]


def test_the_order_of_the_names_is_kept() -> None:
    """Whatever thread is first, each answer stands where its name does."""
    assert list(read_many(str.upper, NAMES)) == [name.upper() for name in NAMES]
    assert list(read_many(str.upper, [])) == []


def test_several_are_read_at_once() -> None:
    """As many as there are readers meet inside ``read``; one after the other they would wait for ever."""
    meeting = threading.Barrier(READERS, timeout=240)

    def read(name: str) -> str:
        meeting.wait()
        return name

    assert list(read_many(read, NAMES[: 2 * READERS])) == NAMES[: 2 * READERS]


def test_a_failure_is_raised_in_its_turn_and_ends_the_reading() -> None:
    """What came before it is delivered, and the threads are gone afterwards."""
    before = threading.active_count()

    def read(name: str) -> str:
        if name == "n3":
            raise PermissionError(name)
        return name

    reading = read_many(read, NAMES)
    assert [next(reading) for _ in range(3)] == ["n0", "n1", "n2"]
    with pytest.raises(PermissionError, match="n3"):
        next(reading)
    assert threading.active_count() == before


def test_it_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """With a clock on which each look takes a second there is a word after every five or six objects, and not more."""
    ticks = count()
    with caplog.at_level(logging.INFO, "airflow_tpu.stores.parallel_reads"):
        list(read_many(str.upper, NAMES[:12], Clock(monotonic=lambda: float(next(ticks)))))
    assert caplog.messages == ["read 5 of 12 objects", "read 10 of 12 objects"]
