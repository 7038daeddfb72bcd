# SPDX-License-Identifier: Apache-2.0
"""Measure how long the report over a large ledger takes: reading, folding and writing 10,000 incarnations.

Run ``python benchmarks/fold_ledger.py [incarnations]``; the fold alone is to stay below two seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "plugins"))

from airflow_tpu.core.catalogue.catalogue import Catalogue  # noqa: E402 - the package is found through the line above
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened, TimeSource, event_from_bytes, event_to_bytes  # noqa: E402
from airflow_tpu.core.ledger.usage import fold  # noqa: E402
from airflow_tpu.core.report.text import text_report  # noqa: E402
from airflow_tpu.core.report.usage_json import json_summary  # noqa: E402
from airflow_tpu.core.tpu.spec import Tier  # noqa: E402

T = TypeVar("T")
START = datetime(2026, 9, 3, tzinfo=UTC)
TYPES = (("v2-8", "us-central1-f", 4), ("v5litepod-8", "europe-west4-b", 8), ("v4-8", "us-central2-b", 4))
LIMIT_SECS = 2.0


def ledger(count: int) -> list[bytes]:
    """Make the objects of ``count`` incarnations over ninety days, some over midnight, some preempted at once."""
    return [content for number in range(count) for content in incarnation(number)]


def incarnation(number: int) -> tuple[bytes, bytes]:
    """The two objects of one incarnation."""
    kind, zone, chips = TYPES[number % len(TYPES)]
    asked = START + timedelta(minutes=13 * number)
    node_id = f"tpu-train-{number:010x}-1"
    covered = f"64 spot {kind} in {zone}" if number % 10 else None
    opened = Opened(
        node_id=node_id,
        run=f"{number:010x}",
        dag_id=f"dag_{number % 40}",
        run_id=f"scheduled__{asked.isoformat()}",
        project="my-tpu-project",
        zone=zone,
        accelerator_type=kind,
        chips=chips,
        tier=Tier.SPOT,
        provisioning="queued-resource",
        external_ips=1,
        allowance=covered,
        paid_reason="" if covered else "benchmark",
        requested_at=asked,
    )
    ended = asked + timedelta(seconds=30 + number * 7919 % 30_000)
    closed = Closed(node_id, asked, ended, EndReason.PREEMPTED, TimeSource.API, 20.0, 1_000_000)
    return event_to_bytes(opened), event_to_bytes(closed)


def timed(name: str, work: Callable[[], T]) -> tuple[T, float]:
    """Do it once, print and return how long it took."""
    begin = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begin
    print(f"{name:<8} {seconds:7.3f} s")
    return result, seconds


def main() -> int:
    """Time each step; return 1 if the fold is slower than the limit."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    catalogue = Catalogue.load(ROOT / "include" / "catalogue")
    objects = ledger(count)
    events, _ = timed("read", lambda: [event_from_bytes(content) for content in objects])
    usage, seconds = timed("fold", lambda: fold(events, catalogue, START + timedelta(days=120)))
    timed("text", lambda: text_report(usage))
    timed("json", lambda: json_summary(usage))
    print(f"{count} incarnations, {len(usage.by_day)} days, {usage.covered.chip_hours:.2f} chip-hours covered")
    return int(seconds > LIMIT_SECS)


if __name__ == "__main__":
    sys.exit(main())
