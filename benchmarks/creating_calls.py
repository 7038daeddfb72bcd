# SPDX-License-Identifier: Apache-2.0
"""Count the calls of the TPU API in a minute in which nodes are being created, each awaited by a trigger's own wait.

Run ``python benchmarks/creating_calls.py [--poll 3] [1 10 100 500]``. The local cloud is in this process, and its nodes
stay CREATING.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

from google.auth.credentials import AnonymousCredentials  # noqa: E402 - the packages are found through the line above
from google.cloud import tpu_v2  # noqa: E402

from airflow_tpu.clients.tpu_api import TPUClient  # noqa: E402
from airflow_tpu.clients.tpu_calls import APIEndpoint  # noqa: E402
from airflow_tpu.core.tpu.resource_name import node_name  # noqa: E402
from airflow_tpu.lifecycle.waits.polling import PollPolicy  # noqa: E402
from airflow_tpu.lifecycle.waits.ready import until_ready  # noqa: E402
from airflow_tpu.lifecycle.waits.target import Target  # noqa: E402
from localcloud.rules.settings import Latencies, Settings  # noqa: E402
from localcloud.server import LocalCloudConfig  # noqa: E402
from localcloud.testing import BackgroundCloud  # noqa: E402

PROJECT, ZONE = "local-project", "us-central1-f"
NODE = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base"}


def create(cloud: BackgroundCloud, node_id: str) -> Target:
    """Ask for a node that never comes."""
    parent = f"projects/{PROJECT}/locations/{ZONE}"
    request = tpu_v2.CreateNodeRequest(parent=parent, node_id=node_id, node=NODE)
    operation = cloud.call(lambda: cloud.cloud.service.methods["Tpu/CreateNode"](request))
    return Target(node_name(PROJECT, ZONE, node_id), operation=str(operation.name))


async def wait(cloud: BackgroundCloud, target: Target, poll: float) -> None:
    """Wait for a node with a client of its own."""
    endpoint = APIEndpoint(PROJECT, AnonymousCredentials(), cloud.endpoints.tpu_api_endpoint, True)
    async with TPUClient(endpoint) as client:
        await until_ready(client, target, PollPolicy(poll, dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)))


def calls(cloud: BackgroundCloud) -> Counter[str]:
    """How often each method was called."""
    return Counter(cloud.meter()["calls"])


async def measure(folder: Path, nodes: int, poll: float) -> None:
    """Let the waits begin, then count for a minute."""
    settings = Settings(latencies=Latencies(creating=7200.0), default_quota=100_000)
    with BackgroundCloud(LocalCloudConfig(state_dir=folder, tier="inprocess", settings=settings)) as cloud:
        targets = [create(cloud, f"node-{number}") for number in range(nodes)]
        waits = [asyncio.ensure_future(wait(cloud, target, poll)) for target in targets]
        await asyncio.sleep(poll + 5)
        before, cpu = calls(cloud), time.process_time()
        await asyncio.sleep(60)
        found = +(calls(cloud) - before)
        cpu = time.process_time() - cpu
        print(f"{nodes:4} nodes: {found.total():5} calls, {cpu:5.1f} CPU-s with the cloud: {dict(found)}", flush=True)
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def main() -> None:
    """Measure each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", nargs="*", type=int, default=[1, 10, 100, 500])
    parser.add_argument("--poll", type=float, default=3.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for nodes in given.nodes:
            asyncio.run(measure(Path(folder, str(nodes)), nodes, given.poll))


if __name__ == "__main__":
    main()
