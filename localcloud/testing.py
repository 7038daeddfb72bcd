# SPDX-License-Identifier: Apache-2.0
"""A local cloud for tests that are not coroutines themselves, such as those that run a whole DAG in one process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.cloud.tpu_v2 import TpuClient
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from localcloud.endpoints import Endpoints
from localcloud.server import LocalCloud, LocalCloudConfig

if TYPE_CHECKING:
    from google.cloud import storage

T = TypeVar("T")
TIMEOUT = 240.0
"""Seconds until a wait is given up: far more than it takes on a slow machine. When all is well nothing waits for it."""
_POLL = 0.02


def eventually(probe: Callable[[], T], wanted: Callable[[T], bool], seconds: float = TIMEOUT, poll: float = _POLL) -> T:
    """Call ``probe`` until ``wanted`` accepts its result, and return that.

    :param seconds: bound on the wait.
    :param poll: seconds between two calls; more for an expensive probe.
    :raises AssertionError: with the last result, when the time is over.
    """
    deadline = time.monotonic() + seconds
    while not wanted(result := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still not as wanted after {seconds:.0f} s: {result!r}")
        time.sleep(poll)
    return result


async def eventually_async(
    probe: Callable[[], Awaitable[T]], wanted: Callable[[T], bool], seconds: float = TIMEOUT
) -> T:
    """Do the same as :func:`eventually` with a coroutine, on the running loop."""
    deadline = time.monotonic() + seconds
    while not wanted(result := await probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still not as wanted after {seconds:.0f} s: {result!r}")
        await asyncio.sleep(_POLL)
    return result


def tpu_client(endpoints: Endpoints) -> TpuClient:
    """Return Google's own client, connected to a local cloud in plaintext."""
    channel = grpc.insecure_channel(endpoints.tpu_api_endpoint)
    return TpuClient(transport=TpuGrpcTransport(channel=channel))


def storage_bucket(url: str, name: str) -> storage.Bucket:
    """Return a bucket by Google's own client, without credentials.

    :param url: of the storage server.
    :param name: of a bucket that is there.
    """
    # Imported here: most tests need no client of the storage, which takes a second to load.
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client("local-project", AnonymousCredentials(), client_options={"api_endpoint": url})
    return client.bucket(name)


class BackgroundCloud:
    """A :class:`LocalCloud` in a thread with an event loop of its own; a plain context manager.

    :param config: how to start it.
    :raises TimeoutError: on entry or exit, if it takes longer than :data:`TIMEOUT`.
    """

    def __init__(self, config: LocalCloudConfig) -> None:
        self.cloud = LocalCloud(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="localcloud", daemon=True)

    def __enter__(self) -> BackgroundCloud:
        self._thread.start()
        try:
            self.run(self.cloud.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self.cloud.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT)
        self._loop.close()

    @property
    def endpoints(self) -> Endpoints:
        """Where the cloud is found."""
        return self.cloud.endpoints

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cloud's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT)

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function on the cloud's loop: its state belongs to that thread."""

        async def on_loop() -> T:
            return function()

        return self.run(on_loop())

    def meter(self) -> dict[str, Any]:
        """Return what the meter has counted."""
        return self.call(self.cloud.dump)

    def add_fault(self, point: str, match: dict[str, str] | None = None, times: int = 1, **params: Any) -> str:
        """Script a fault and return its id."""
        return self.cloud.faults.add({"point": point, "match": match or {}, "times": times, "params": params})

    def preempt(self, node: str, notice: float | None = None) -> None:
        """Preempt a node by its id, so many seconds after the notice; None for what the settings say."""
        state = self.cloud.state
        self.call(lambda: state.shutdown.preempt(state.node(node), notice))

    def snapshot(self) -> dict[str, Any]:
        """Return nodes and queued resources in short."""
        return self.call(self.cloud.state.snapshot)
