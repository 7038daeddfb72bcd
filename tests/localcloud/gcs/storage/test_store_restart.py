# SPDX-License-Identifier: Apache-2.0
"""The storage server across restarts, and after its process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from localcloud.clock import ManualClock
from tests.contract.gcs_target import RunningServer

DATA = os.urandom(1024 * 1024)
SERVE = """
import asyncio, sys
from pathlib import Path
from localcloud.clock import RealClock
from localcloud.faults import FaultRegistry
from localcloud.gcs import GCSServer

async def main():
    server = GCSServer(Path(sys.argv[1]), RealClock(), FaultRegistry())
    server.create_bucket("kept")
    print(await server.start(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_objects_survive_a_restart(tmp_path: Path) -> None:
    """Content, metadata, generation and metageneration are the same after a restart."""
    with RunningServer(tmp_path) as cloud:
        cloud.server.create_bucket("kept", "EUROPE-WEST4")
        blob = cloud.client().bucket("kept").blob("a/b")
        blob.metadata = {"run": "a"}
        blob.upload_from_string(DATA)
        blob.cache_control = "no-store"
        blob.patch()
    with RunningServer(tmp_path) as cloud:
        seen = cloud.client().get_bucket("kept").get_blob("a/b")
        assert (seen.generation, seen.metageneration, seen.metadata) == (blob.generation, 2, {"run": "a"})
        assert seen.download_as_bytes() == DATA
        assert cloud.client().get_bucket("kept").location == "EUROPE-WEST4"


def test_resumable_session_survives_a_restart(tmp_path: Path) -> None:
    """A session opened before a restart continues after it and ends with the right hash."""
    with RunningServer(tmp_path) as cloud:
        cloud.server.create_bucket("kept")
        opened = requests.post(f"{cloud.url}/upload/storage/v1/b/kept/o?uploadType=resumable&name=x")
        session = opened.headers["Location"].removeprefix(cloud.url)
        requests.put(cloud.url + session, data=DATA[:524_288], headers={"Content-Range": "bytes 0-524287/*"})
    with RunningServer(tmp_path) as cloud:
        kept = requests.put(cloud.url + session, headers={"Content-Range": "bytes */*"})
        assert kept.headers["Range"] == "bytes=0-524287"
        rest = {"Content-Range": f"bytes 524288-{len(DATA) - 1}/{len(DATA)}"}
        assert requests.put(cloud.url + session, data=DATA[524_288:], headers=rest).status_code == 200
        assert cloud.client().bucket("kept").blob("x").download_as_bytes() == DATA


def test_kill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """After kill -9 in the middle of an upload all answered objects are there and the half one left no trace."""
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    options = {"api_endpoint": url}
    bucket = storage.Client(project="p", credentials=AnonymousCredentials(), client_options=options).bucket("kept")
    for number in range(5):
        bucket.blob(str(number)).upload_from_string(DATA[number:])

    def endless() -> Iterator[bytes]:
        yield DATA
        server.send_signal(signal.SIGKILL)
        server.wait()
        yield DATA

    with pytest.raises(requests.ConnectionError):
        requests.post(f"{url}/upload/storage/v1/b/kept/o?uploadType=media&name=half", data=endless())
    server.stdout.close()
    with RunningServer(tmp_path) as cloud:
        kept = cloud.client().bucket("kept")
        assert {blob.name: blob.download_as_bytes() for blob in kept.list_blobs()} == {
            str(number): DATA[number:] for number in range(5)
        }
        assert len(list(tmp_path.glob("blobs/??/*"))) == 5


def test_generations_never_repeat(tmp_path: Path) -> None:
    """On a clock that stands still, across a delete and a restart, every generation is greater than the one before."""
    seen: list[int] = []
    for _ in range(2):
        with RunningServer(tmp_path, ManualClock()) as cloud:
            cloud.server.create_bucket("kept")
            for _ in range(2):
                blob = cloud.client().bucket("kept").blob("x")
                blob.upload_from_string(b"x")
                seen.append(int(blob.generation or 0))
                blob.delete()
    assert seen == sorted(set(seen))
    assert len(seen) == 4


def test_only_wanted_files_stay(tmp_path: Path) -> None:
    """Overwriting, deleting, cancelling and composing leave exactly one file per object."""
    with RunningServer(tmp_path) as cloud:
        cloud.server.create_bucket("kept")
        bucket = cloud.client().bucket("kept")
        for data in (b"1", b"2"):
            bucket.blob("a").upload_from_string(data)
        bucket.blob("b").compose([bucket.blob("a"), bucket.blob("a")])
        bucket.rename_blob(bucket.blob("b"), "c")
        opened = requests.post(f"{cloud.url}/upload/storage/v1/b/kept/o?uploadType=resumable&name=x")
        requests.delete(opened.headers["Location"])
        assert len(list(tmp_path.glob("blobs/??/*"))) == 2
        assert cloud.server.stats()["buckets"]["kept"]["objects"] == 2
