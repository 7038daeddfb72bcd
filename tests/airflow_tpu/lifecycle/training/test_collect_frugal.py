# SPDX-License-Identifier: Apache-2.0
"""What a run asks of its machine and of its bucket does not grow with what it prints."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from airflow_tpu.clients.ssh import WorkerAddress
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.lifecycle.training.collect import collect
from airflow_tpu.lifecycle.training.follow import Follower
from airflow_tpu.lifecycle.training.launch import launch
from tests.airflow_tpu.attempts import NODE, ready, run_context, script
from tests.airflow_tpu.cloud_env import BUCKET, KEY, CloudEnv, poll_policy

pytestmark = pytest.mark.slow

LINES = 300
CHATTY = f"""
import pathlib, os, time
for number in range({LINES}):
    print("line", number, flush=True)
    pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "progress.json").write_text('{{"step": %d}}' % number)
    time.sleep(0.01)
"""


class Turnstile:
    """A way to a worker on which connections are counted.

    :ivar passed: how many there have been.
    """

    def __init__(self, worker: WorkerAddress) -> None:
        self.passed = 0
        self._worker = worker

    async def open(self) -> asyncio.Server:
        """Listen."""
        return await asyncio.start_server(self._pass, "127.0.0.1", 0)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.passed += 1
        theirs, ours = await asyncio.open_connection(self._worker.host, self._worker.port)
        await asyncio.gather(_pipe(reader, ours), _pipe(theirs, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_following_a_run_takes_one_connection(env: CloudEnv, client: TPUClient) -> None:
    """However much a run prints, its follower logs in once and gets only what is new."""
    work = run_context(script(env, CHATTY))
    job = await launch(client, work, await ready(work, client), NODE)
    turnstile, lines = Turnstile(job.address), list[str]()
    async with await turnstile.open() as server:
        host, port = server.sockets[0].getsockname()
        job = replace(job, address=replace(job.address, host=host, port=port))
        await Follower(client, work.clients.access.login, job, lines.append).until_finished(poll_policy().until)
    assert (len(lines), turnstile.passed) == (LINES, 1)


async def test_no_object_is_rewritten_while_a_script_prints(env: CloudEnv, client: TPUClient) -> None:
    """Each object that a run leaves in the bucket has been written once; the bucket would keep what was overwritten."""
    work = run_context(script(env, CHATTY))
    job = await launch(client, work, await ready(work, client), NODE)
    await Follower(client, work.clients.access.login, job, lambda _: None).until_finished(poll_policy().until)
    below = f"gs://{BUCKET}/runs/"
    collected = await collect(client, work, work.stores.runs.read(KEY), f"{below}{KEY.name}/attempt-1")
    assert "log.txt" in {file.path for file in collected.manifest.files}
    assert work.clients.storage.facts.soft_deleted(below) == 0
    name = f"runs/{KEY.name}/attempt-1/log.txt"
    work.clients.storage.get_conn().bucket(BUCKET).blob(name).upload_from_string("once more")
    assert work.clients.storage.facts.soft_deleted(below)
