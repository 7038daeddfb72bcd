# SPDX-License-Identifier: Apache-2.0
"""The target of the storage contract: the local server, or a real bucket.

``AIRFLOW_TPU_TEST_BUCKET=gs://bucket[/prefix]`` selects a real one, with the application default credentials of the
machine. Everything is written below one random prefix and deleted at the end.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import google.auth
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import storage

from localcloud.clock import Clock, RealClock
from localcloud.faults import FaultRegistry
from localcloud.gcs import GCSServer

REAL = os.environ.get("AIRFLOW_TPU_TEST_BUCKET", "")
GOOGLE = "https://storage.googleapis.com"


class RunningServer(AbstractContextManager["RunningServer"]):
    """A storage server on a loop and a thread of its own, for clients that block.

    :param root: where it keeps its state.
    :param clock: its time; the machine's by default.
    :param port: to listen on; any free one by default.
    """

    def __init__(self, root: Path, clock: Clock | None = None, port: int = 0) -> None:
        self.root = root
        self.clock = clock or RealClock()
        self.faults = FaultRegistry()
        self.url = ""
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gcs")

    def __enter__(self) -> RunningServer:
        self.server = GCSServer(self.root, self.clock, self.faults)
        self._thread.start()
        self.url = self.run(self.server.start(port=self._port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Any) -> Any:
        """Run a coroutine on the server's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def client(self, project: str = "local-project") -> storage.Client:
        """Return an anonymous client of this server."""
        options = {"api_endpoint": self.url}
        return storage.Client(project=project, credentials=AnonymousCredentials(), client_options=options)


@dataclass
class Target:
    """Where the contract is checked.

    :param url: base URL of the storage service.
    :param bucket: a bucket that exists.
    :param prefix: start of every object name used.
    :param http: session for requests that no client library makes.
    """

    url: str
    bucket: storage.Bucket
    prefix: str
    http: requests.Session

    def name(self, text: str = "object") -> str:
        """Return an unused object name."""
        return f"{self.prefix}{secrets.token_hex(4)}/{text}"

    def blob(self, text: str = "object", **options: Any) -> storage.Blob:
        """Return a handle on an object that does not exist."""
        return self.bucket.blob(self.name(text), **options)

    def put(self, data: bytes = b"content", text: str = "object") -> storage.Blob:
        """Return an object that exists."""
        blob = self.blob(text)
        blob.upload_from_string(data)
        return blob

    def names(self, prefix: str, **options: Any) -> list[str]:
        """Return the names below a prefix, without it."""
        found = self.bucket.client.list_blobs(self.bucket, prefix=prefix, **options)
        return [blob.name.removeprefix(prefix) for blob in found]

    def session(self, name: str, **query: Any) -> str:
        """Open a resumable session by hand and return its URL."""
        url = f"{self.url}/upload/storage/v1/b/{self.bucket.name}/o"
        reply = self.http.post(url, params={"uploadType": "resumable", "name": name, **query})
        reply.raise_for_status()
        return reply.headers["Location"]


@contextmanager
def _real() -> Iterator[Target]:
    credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/devstorage.full_control"])
    client = storage.Client(project=project, credentials=credentials)
    name, _, folder = REAL.removeprefix("gs://").partition("/")
    prefix = "/".join(filter(None, [folder.strip("/"), f"airflow-tpu-{secrets.token_hex(4)}", ""]))
    bucket = client.bucket(name)
    try:
        yield Target(GOOGLE, bucket, prefix, AuthorizedSession(credentials))
    finally:
        for blob in client.list_blobs(bucket, prefix=prefix, versions=True):
            blob.delete()


@contextmanager
def _local() -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder)) as server:
        server.server.create_bucket("contract-bucket")
        bucket = server.client().bucket("contract-bucket")
        yield Target(server.url, bucket, f"run-{secrets.token_hex(4)}/", requests.Session())


def open_target() -> AbstractContextManager[Target]:
    """Return the target that the environment selects."""
    return _real() if REAL else _local()
