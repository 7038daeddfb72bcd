# SPDX-License-Identifier: Apache-2.0
"""The local cloud behind Google's own client, without a socket: requests are bytes, time is virtual."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud.tpu_v2 import TpuAsyncClient
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport
from grpc import aio

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint
from airflow_tpu.clients.tpu_retry import CallTiming
from airflow_tpu.hooks.artifacts import ObjectInfo, StoredJSON
from localcloud.rules.errors import CloudError
from localcloud.tpu_api.dispatcher import CallDispatcher, resource_of
from localcloud.tpu_api.grpc_table import MethodRow, method_table
from tests.faults.virtual_processes import Process

_ROWS = method_table()
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_DETAILS = "grpc-status-details-bin"

Before = Callable[[str, Any], None]
"""Told of each request at the moment it reaches the cloud."""


class _Answer:
    """What a stub returns: awaited, it sends the request."""

    def __init__(self, sending: Coroutine[Any, Any, Any]) -> None:
        self._sending = sending

    def __await__(self) -> Generator[Any, None, Any]:
        return self._sending.__await__()


class _Stub(aio.UnaryUnaryMultiCallable):  # type: ignore[misc]  # grpc brings no types
    def __init__(self, channel: VirtualChannel, row: MethodRow, write: Callable[[Any], bytes], read: Any) -> None:
        self._channel, self._row, self._write, self._read = channel, row, write, read

    def __call__(self, request: Any, **_: Any) -> Any:
        return _Answer(self._call(self._write(request)))

    async def _call(self, body: bytes) -> Any:
        await asyncio.sleep(0)  # as with a socket, nobody has an answer in the same turn of the loop
        return self._read(await self._channel.send(self._row, body))


class VirtualChannel(aio.Channel):  # type: ignore[misc]  # grpc brings no types
    """A channel of one process to the local cloud.

    :param process: stopped before each request.
    :param dispatcher: where the cloud answers calls.
    :param before: told of each request.
    """

    def __init__(self, process: Process, dispatcher: CallDispatcher, before: Before) -> None:
        self._process, self._dispatcher, self._before = process, dispatcher, before
        self._unary_unary_interceptors: list[Any] = []  # the transport appends its logging here

    async def send(self, row: MethodRow, body: bytes) -> bytes:
        """Serve one call the way the gRPC server of the local cloud does."""
        request = row.parse(body)
        method = row.key.partition("/")[2]
        self._process.stop_before(f"{method} {resource_of(request).rpartition('/')[2]}")
        self._before(method, request)
        try:
            return row.serialize(await self._dispatcher.serve(row.key, request, "grpc"))
        except CloudError as error:
            details = aio.Metadata((_DETAILS, error.status().SerializeToString()))
            raise aio.AioRpcError(_CODES[error.code], aio.Metadata(), details, details=error.message) from error

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any
    ) -> Any:
        """Stub of a method."""
        return _Stub(self, _ROWS[method], request_serializer, response_deserializer)

    async def close(self, grace: float | None = None) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> VirtualChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    def _absent(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("the Cloud TPU API has unary methods only")

    unary_stream = stream_unary = stream_stream = get_state = channel_ready = _absent
    wait_for_state_change = _absent


class VirtualClient(TPUClient):
    """The product's client on a channel without a socket.

    :param channel: where its calls go.
    :param process: whose clock it lives by.
    """

    def __init__(self, channel: VirtualChannel, process: Process) -> None:
        endpoint = APIEndpoint("local-project", AnonymousCredentials(), "virtual", True)
        super().__init__(endpoint, CallTiming(), process.clock)
        self._channel = channel

    async def __aenter__(self) -> VirtualClient:
        self.calls.open(TpuAsyncClient(transport=TpuGrpcAsyncIOTransport(channel=self._channel)))
        return self


class VirtualBucket:
    """Objects with generations; every change is one step that nobody gets in between."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[int, str]] = {}
        self.written = 0

    def put(self, name: str, text: str, generation: int | None) -> int | None:
        """Write, or None when the precondition does not hold."""
        if generation not in (None, self.objects.get(name, (0, ""))[0]):
            return None
        self.written += 1
        self.objects[name] = (self.written, text)
        return self.written

    def delete(self, name: str, generation: int | None) -> bool:
        """Remove, or False when the precondition does not hold or nothing is there."""
        if name not in self.objects or generation not in (None, self.objects[name][0]):
            return False
        del self.objects[name]
        return True


class VirtualFacts:
    """What is known of the one bucket."""

    def location(self, bucket: str) -> str | None:
        """Where every bucket is: beside the TPUs."""
        return "US-CENTRAL1"

    def project_number(self, bucket: str) -> str | None:
        """Whose every bucket is: the grant's."""
        return "100000000001"


class VirtualStorage:
    """The verbs of :class:`airflow_tpu.hooks.artifacts.ArtifactsHook` that leases, reservations and ledger use.

    The hook itself is proven against the wire in tests/airflow_tpu/hooks; here its generation preconditions count.

    :param process: stopped before each request.
    :param bucket: the objects, shared by all processes.
    """

    def __init__(self, process: Process, bucket: VirtualBucket) -> None:
        self._process, self._bucket = process, bucket
        self.facts = VirtualFacts()

    def listing(self, uri: str) -> list[ObjectInfo]:
        """Objects below a prefix."""
        prefix = self._sent("list", uri)
        found = sorted(name for name in self._bucket.objects if name.startswith(prefix))
        rows = [(name, *self._bucket.objects[name]) for name in found]
        return [ObjectInfo(name, len(text), "", generation) for name, generation, text in rows]

    def read_json(self, uri: str) -> StoredJSON | None:
        """One object."""
        found = self._bucket.objects.get(self._sent("read", uri))
        return StoredJSON(json.loads(found[1]), found[0]) if found else None

    def write_json(self, uri: str, data: Mapping[str, Any], generation: int | None = None) -> int | None:
        """Write an object at a generation."""
        return self._bucket.put(self._sent("write", uri), json.dumps(data, sort_keys=True), generation)

    def read_gzip(self, uri: str) -> StoredJSON | None:
        """One object; how it is packed does not matter here."""
        return self.read_json(uri)

    def write_gzip(self, uri: str, data: Mapping[str, Any], generation: int) -> int | None:
        """Write an object at a generation."""
        return self.write_json(uri, data, generation)

    def remove(self, uri: str, generation: int | None = None) -> None:
        """Remove an object."""
        self._bucket.delete(self._sent("remove", uri), generation)

    def _sent(self, verb: str, uri: str) -> str:
        name = uri.removeprefix("gs://").partition("/")[2]
        self._process.stop_before(f"{verb} {name}")
        return name
