# SPDX-License-Identifier: Apache-2.0
"""Measure what a followed run costs a triggerer: memory, CPU seconds.

Run ``python benchmarks/followed_memory.py [--runs 100]``. The local cloud and one TPU VM are in another process; in
this one so many followers, each with a connection of its own, follow the run that is there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT)]

import asyncssh  # noqa: E402 - the packages are found through the lines above
from google.auth.credentials import AnonymousCredentials  # noqa: E402
from google.cloud import tpu_v2  # noqa: E402

from airflow_tpu.clients.runner.session import RunSession  # noqa: E402
from airflow_tpu.clients.ssh import Login, WorkerAddress  # noqa: E402
from airflow_tpu.clients.tpu_api import TPUClient  # noqa: E402
from airflow_tpu.clients.tpu_calls import APIEndpoint  # noqa: E402
from airflow_tpu.core.run.job import JobSpec, RunRef  # noqa: E402
from airflow_tpu.core.source.bundle import Bundle  # noqa: E402
from airflow_tpu.core.tpu.resource_name import node_name  # noqa: E402
from airflow_tpu.lifecycle.training.follow import Follower, RunningJob  # noqa: E402
from localcloud.server import LocalCloudConfig  # noqa: E402
from localcloud.testing import BackgroundCloud, eventually  # noqa: E402

PROJECT, ZONE, USER = "local-project", "us-central1-f", "trainer"
NODE = node_name(PROJECT, ZONE, "followed")
SECONDS = 20.0
"""How long the memory has to stay level."""


def serve(folder: Path, key: str) -> None:
    """Be the cloud: one VM with one run; its addresses on standard output, until standard input ends."""
    public = asyncssh.import_private_key(key).export_public_key().decode().strip()
    with BackgroundCloud(LocalCloudConfig(state_dir=folder, tier="inprocess")) as cloud:
        node = {
            "accelerator_type": "v2-8",
            "runtime_version": "tpu-ubuntu2204-base",
            "metadata": {"ssh-keys": f"{USER}:{public}"},
        }
        parent = f"projects/{PROJECT}/locations/{ZONE}"
        request = tpu_v2.CreateNodeRequest(parent=parent, node_id=NODE.id, node=node)
        cloud.call(lambda: cloud.cloud.service.methods["Tpu/CreateNode"](request))
        eventually(lambda: [row["state"] for row in cloud.snapshot()["nodes"]], lambda found: found == ["READY"])
        print(json.dumps([cloud.endpoints.tpu_api_endpoint, cloud.endpoints.ssh_port]), flush=True)
        sys.stdin.read()


async def start(address: WorkerAddress, login: Login) -> RunRef:
    """Start a run that prints a line now and then."""
    script = "import time\nwhile True:\n    print('step', flush=True)\n    time.sleep(5)"
    job = JobSpec("followed", 1, ("python3", "-u", "-c", script))
    async with RunSession(address, login) as session:
        await session.start(job, Bundle((), b"\0" * 1024))
    return job.ref


async def measure(what: str, runs: int, one: Callable[[], Awaitable[Any]]) -> None:
    """Print what a wait of a kind costs: the growth of this process by so many."""
    process = psutil.Process()
    first = asyncio.ensure_future(one())  # what all share is loaded with the first one
    await asyncio.sleep(SECONDS / 2)
    gc.collect()
    before = process.memory_info().rss
    tasks = [asyncio.ensure_future(one()) for _ in range(runs)]
    await asyncio.sleep(SECONDS + runs / 5)
    gc.collect()
    grown, cpu = process.memory_info().rss - before, time.process_time()
    await asyncio.sleep(SECONDS)
    cpu = time.process_time() - cpu
    ended = [task for task in (first, *tasks) if task.done()]
    print(
        f"{what}: {grown / runs / 1000:.0f} kB for each of {runs}, {100 * cpu / SECONDS:.0f} % of a core, "
        f"{len(ended)} have ended: {[task.exception() for task in ended][:1]}",
        flush=True,
    )
    for task in (first, *tasks):
        task.cancel()
    await asyncio.gather(first, *tasks, return_exceptions=True)


async def measure_all(address: str, port: int, login: Login, runs: int) -> None:
    """Follow by our follower."""
    endpoint = APIEndpoint(PROJECT, AnonymousCredentials(), address, True)
    async with TPUClient(endpoint) as client:
        (worker,) = (await client.node(NODE)).endpoints
    where = WorkerAddress(worker.external or worker.internal, port)
    ref = await start(where, login)

    async def follow() -> None:
        async with TPUClient(endpoint) as client:
            follower = Follower(client, login, RunningJob(NODE, where, ref), lambda line: None)
            await follower.until_finished(dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))

    await measure("Follower", runs, follow)


def main() -> None:
    """Start the cloud in another process, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--serve", default="")
    given = parser.parse_args()
    if given.serve:
        serve(Path(given.serve), os.environ["BENCHMARK_KEY"])
        return
    key = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        command = [sys.executable, __file__, "--serve", folder]
        cloud = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "BENCHMARK_KEY": key, "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}"},
            )
        )
        assert cloud.stdout is not None
        assert cloud.stdin is not None
        stack.callback(cloud.stdin.close)
        address, port = json.loads(cloud.stdout.readline())
        asyncio.run(measure_all(address, port, Login(USER, key), given.runs))


if __name__ == "__main__":
    main()
