# SPDX-License-Identifier: Apache-2.0
"""Measure how long a large ledger takes to read from Cloud Storage (the local cloud's): two objects an incarnation.

Run ``python benchmarks/read_ledger.py [incarnations]``. Against Google each request takes some ten milliseconds more;
the readers work side by side, and the usage page reads each object once per process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from airflow_tpu.core.ledger.events import event_from_bytes, event_to_json  # noqa: E402 - the packages are found through the line above
from airflow_tpu.hooks.artifacts import ArtifactsHook  # noqa: E402
from airflow_tpu.stores.ledger import LedgerStore  # noqa: E402
from airflow_tpu.stores.parallel_reads import READERS  # noqa: E402
from benchmarks.fold_ledger import incarnation, timed  # noqa: E402
from localcloud.server import LocalCloudConfig  # noqa: E402
from localcloud.testing import BackgroundCloud  # noqa: E402

BUCKET = "benchmark"


def fill(hook: ArtifactsHook, root: str, count: int) -> None:
    """Write the objects of so many incarnations below ``gs://bucket/prefix``."""
    events = [event_from_bytes(content) for number in range(count) for content in incarnation(number)]
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(lambda event: hook.write_json(f"{root}/{event.path}", event_to_json(event)), events))


def main() -> int:
    """Fill a ledger, then time one listing and one whole reading."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        config = LocalCloudConfig(Path(folder), tier="inprocess", buckets={BUCKET: "US-CENTRAL1"})
        with BackgroundCloud(config) as cloud:
            os.environ["AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT"] = json.dumps(cloud.endpoints.airflow_connection())
            hook = ArtifactsHook()
            timed("write", lambda: fill(hook, f"gs://{BUCKET}", count))
            store = LedgerStore(hook, f"gs://{BUCKET}")
            timed("list", lambda: store.names("ledger/"))
            events, seconds = timed("read", store.events)
    print(f"{len(events)} objects, {len(events) / seconds:.0f} a second with {READERS} readers")
    return int(len(events) != 2 * count)


if __name__ == "__main__":
    sys.exit(main())
