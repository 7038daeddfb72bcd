# SPDX-License-Identifier: Apache-2.0
"""Measure seconds and requests of ``airflow-tpu usage`` and of the usage page over a large ledger.

Run ``python benchmarks/usage_calls.py [incarnations]``. The bucket is the local cloud's, in this process; against
Google each request takes some ten milliseconds more. The first command reads every object; after it nothing is new.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]
os.environ.setdefault("AIRFLOW__AIRFLOW_TPU__GRANT", "local.yaml")

from airflow_tpu.cli.main import main as command  # noqa: E402 - the packages are found through the line above
from airflow_tpu.core.ledger.events import event_from_bytes  # noqa: E402
from airflow_tpu.hooks.artifacts import ArtifactsHook  # noqa: E402
from airflow_tpu.stores.grants import load_grant, store_root  # noqa: E402
from airflow_tpu.ui.data import Loader  # noqa: E402
from airflow_tpu.ui.parts import Reader  # noqa: E402
from airflow_tpu.ui.views import page  # noqa: E402
from benchmarks.fold_ledger import START, incarnation  # noqa: E402
from benchmarks.read_ledger import fill  # noqa: E402
from localcloud.server import LocalCloudConfig  # noqa: E402
from localcloud.testing import BackgroundCloud  # noqa: E402


def measured(cloud: BackgroundCloud, name: str, work: Callable[[], Any]) -> None:
    """Do it once; print how long it took and how many requests Cloud Storage got."""
    before, begin = requests(cloud), time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    print(f"{name:<28} {seconds:7.2f} s {requests(cloud) - before:7d} requests", flush=True)


def requests(cloud: BackgroundCloud) -> int:
    """Requests to Cloud Storage so far."""
    return sum(cloud.call(cloud.cloud.storage.stats)["requests"].values())


def usage(*words: str) -> None:
    """Run the command; what it prints is not shown."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        if command(["usage", *words]):
            raise SystemExit(errors.getvalue())


def shown() -> None:
    """Make the page of a process that has just started."""
    snapshot = Loader()()
    if snapshot.usage is None:
        raise SystemExit(str(snapshot.problems))
    json.dumps(page(snapshot, Reader(snapshot.dag_ids, everything=True)))


def commands(count: int) -> dict[str, list[str]]:
    """What is asked, by its name."""
    last = event_from_bytes(incarnation(count - 1)[0])
    day = f"{START:%Y-%m-%d}"
    with tempfile.TemporaryDirectory() as folder:
        month = ["--month", f"{START:%Y-%m}", "--output", folder]
    return {
        "usage, first": [],
        "usage": [],
        "usage --run": ["--run", last.node_id],
        "usage of one day": ["--from", day, "--to", day],
        "usage --month": [*month, "--json"],
    }


def main() -> int:
    """Fill a ledger, then ask of it what people ask."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        root = store_root(load_grant())
        config = LocalCloudConfig(Path(folder), tier="inprocess", buckets={root.split("/")[2]: "US-CENTRAL1"})
        with BackgroundCloud(config) as cloud:
            os.environ["AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT"] = json.dumps(cloud.endpoints.airflow_connection())
            measured(cloud, "fill", lambda: fill(ArtifactsHook(), root, count))
            for name, words in commands(count).items():
                measured(cloud, name, lambda words=words: usage(*words))  # type: ignore[misc]
            measured(cloud, "page, cold", shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
