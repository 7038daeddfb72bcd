# SPDX-License-Identifier: Apache-2.0
"""The table of gRPC methods, read from the client package at run time.

``google-cloud-tpu`` ships message classes but no server and no service descriptor. Its transport, though, registers
every method with a path, a serializer and a deserializer; a channel that only records these gives the whole table.
A newer client therefore brings its new methods as *named* unimplemented ones, never as silent drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.cloud.location import locations_pb2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.longrunning import operations_proto_pb2
from google.protobuf import message_factory

TPU_SERVICE = "google.cloud.tpu.v2.Tpu"


@dataclass(frozen=True)
class MethodRow:
    """One method.

    :param path: for example ``/google.cloud.tpu.v2.Tpu/GetNode``.
    :param parse: bytes to request message.
    :param serialize: answer message to bytes; both proto-plus and plain messages.
    """

    path: str
    parse: Callable[[bytes], Any]
    serialize: Callable[[Any], bytes]

    @property
    def key(self) -> str:
        """``Service/Method`` without the package, as in :attr:`localcloud.tpu_api.service.TpuService.methods`."""
        service, _, method = self.path.lstrip("/").partition("/")
        return f"{service.rpartition('.')[2]}/{method}"


def method_table() -> dict[str, MethodRow]:
    """Return every method of the TPU, Operations and Locations services by path."""
    rows = [*_tpu_methods(), *_described(operations_proto_pb2, "Operations"), *_described(locations_pb2, "Locations")]
    return {row.path: row for row in rows}


class _Recorder:
    """A channel that records the methods which the transport registers."""

    def __init__(self) -> None:
        self.rows: list[MethodRow] = []

    def unary_unary(
        self, path: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Callable[..., None]:
        if path.startswith(f"/{TPU_SERVICE}/"):
            request_class = request_serializer.__self__
            self.rows.append(MethodRow(path, request_class.deserialize, serialize))
        return lambda *_args, **_kwargs: None


def _tpu_methods() -> list[MethodRow]:
    recorder = _Recorder()
    # The channel is never used: the discard port refuses, and every stub below goes to the recorder.
    with grpc.insecure_channel("127.0.0.1:9") as channel:
        transport = TpuGrpcTransport(channel=channel)
        transport._logged_channel = recorder  # the interceptor channel registers lazily, hence this private name
        transport._stubs.clear()
        for name in dir(TpuGrpcTransport):
            if isinstance(getattr(TpuGrpcTransport, name), property):
                getattr(transport, name)
    return recorder.rows


def _described(module: Any, service: str) -> Iterator[MethodRow]:
    """Read a service whose descriptor is published: the transport's mixins hide the request classes of these."""
    descriptor = module.DESCRIPTOR.services_by_name[service]
    for method in descriptor.methods:
        request_class = message_factory.GetMessageClass(method.input_type)
        yield MethodRow(f"/{descriptor.full_name}/{method.name}", request_class.FromString, serialize)


def serialize(message: Any) -> bytes:
    """Return the bytes of a proto-plus or plain message."""
    plain = type(message).pb(message) if hasattr(type(message), "pb") else message
    return bytes(plain.SerializeToString())
