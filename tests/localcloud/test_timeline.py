# SPDX-License-Identifier: Apache-2.0
"""Virtual time: the same seed gives the same history, and clocks do what they say."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from localcloud.clock import ManualClock, RealClock
from localcloud.timeline import Timeline, advance
from localcloud.virtual_cloud import make_virtual_cloud


def history(seed: int) -> list[tuple[float, str, int | None]]:
    """Return all transitions of ten nights with seeded_random preemptions, each re-created in the morning."""
    cloud = make_virtual_cloud(seed, spot_mean_life=5 * 3600.0)
    seen: list[tuple[float, str, int | None]] = []
    cloud.state.nodes.listeners.append(lambda one: seen.append((one.seconds, str(one.record.uid), one.new)))
    for night in range(10):
        cloud.create(f"night-{night}")
        cloud.pass_time(24 * 3600)
    return seen


def test_a_seed_decides_the_whole_history() -> None:
    """Ten nights of preemptions repeat exactly with the same seed and differ with another."""
    assert history(1) == history(1)
    assert history(1) != history(2)


def test_callbacks_run_at_their_own_instants() -> None:
    """Playing an hour at once runs every callback at the time it was planned for, in order."""
    clock = ManualClock()
    timeline = Timeline(clock)
    seen: list[float] = []
    for delay in (30.0, 10.0, 20.0):
        timeline.after(delay, lambda: seen.append(clock.monotonic()))
    timeline.after(15.0, lambda: seen.append(0.0)).cancel()
    advance(timeline, clock, 3600)
    assert (seen, clock.monotonic()) == ([10.0, 20.0, 30.0], 3600.0)


async def test_a_manual_clock_wakes_sleepers_when_they_are_due() -> None:
    """A sleeper wakes when the clock has been advanced far enough, not before."""
    clock = ManualClock(datetime(2026, 6, 1, tzinfo=UTC))
    sleeper = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)
    clock.advance(9)
    await asyncio.sleep(0)
    early = sleeper.done()
    clock.advance(1)
    await sleeper
    assert (early, clock.now()) == (False, datetime(2026, 6, 1, 0, 0, 10, tzinfo=UTC))


async def test_a_timeline_runs_by_itself_on_a_clock() -> None:
    """A running timeline notices callbacks that are planned while it sleeps."""
    clock = RealClock(speed=1000)
    timeline = Timeline(clock)
    runner = asyncio.create_task(timeline.run())
    late, soon = asyncio.Event(), asyncio.Event()
    timeline.after(20, late.set)
    await asyncio.sleep(0)
    timeline.after(1, soon.set)
    await asyncio.wait_for(asyncio.gather(soon.wait(), late.wait()), 240)
    runner.cancel()
    assert timeline.next_due() is None


@pytest.mark.parametrize("speed", [0, -1])
def test_a_clock_needs_a_positive_speed(speed: float) -> None:
    """A clock that stands or runs backwards is refused."""
    with pytest.raises(ValueError, match="speed"):
        RealClock(speed)


def test_manual_time_does_not_run_backwards() -> None:
    """Advancing by a negative amount is refused."""
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)
