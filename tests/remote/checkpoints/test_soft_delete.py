# SPDX-License-Identifier: Apache-2.0
"""In a bucket with soft delete the run's own log says what its removed checkpoints cost."""

from __future__ import annotations

from checkpoints.soft_delete import SoftDelete
from tests.remote.mirrored_run import MirroredRun
from tests.remote.vm import LONG_GRACE, until

WEEK = 7 * 86400.0
KEPT = "the bucket keeps removed checkpoints for 7 days and bills them as before (soft delete): "


def test_forecast_follows_the_pace() -> None:
    """Two GB in three hours are sixteen in a day, which is said; and again when it is ten times as much."""
    now = [1000.0]
    counted = SoftDelete({"soft_delete_secs": WEEK, "deadline": 1000.0 + 24 * 3600}, lambda: now[0])
    assert counted.add(0) is None
    now[0] += 3 * 3600
    first = counted.add(2_000_000_000)
    assert first == (
        f"{KEPT}2 GB so far, about 16 GB by the deadline at this pace; save less often, or switch soft delete off"
    )
    assert counted.add(17_000_000_000) is None
    assert (counted.add(1_000_000_000) or "").startswith(f"{KEPT}20 GB so far, about 160 GB")
    assert counted.total() == f"{KEPT}20 GB so far"


def test_log_says_what_removed_checkpoints_cost(run: MirroredRun) -> None:
    """The first checkpoint that leaves the bucket is told with its bytes and a forecast, the sum at the end."""
    ref = run.start(soft_delete_secs=WEEK, deadline=4e9)
    for step in (1, 2, 3, 4):
        run.mirrored(ref, step)
    until(lambda: KEPT.encode() in run.machine.log(ref))
    run.machine.stop(LONG_GRACE, ref)
    lines = [line for line in run.machine.log(ref).decode().splitlines() if line.startswith(f"airflow-tpu: {KEPT}")]
    assert " GB by the deadline at this pace; save less often" in lines[0]
    assert lines[-1].endswith(" GB so far")


def test_bucket_that_keeps_nothing_is_no_reason_to_warn(run: MirroredRun) -> None:
    """Without soft delete removed checkpoints cost nothing."""
    ref = run.start()
    for step in (1, 2, 3, 4):
        run.mirrored(ref, step)
    run.machine.stop(LONG_GRACE, ref)
    assert KEPT.encode() not in run.machine.log(ref)
