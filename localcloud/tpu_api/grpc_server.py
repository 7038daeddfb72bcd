# SPDX-License-Identifier: Apache-2.0
"""The TPU API on a port: Google's gRPC services in front of :class:`localcloud.tpu_api.dispatcher.CallDispatcher`."""

from __future__ import annotations

from typing import Any

import grpc

from localcloud.rules.errors import CloudError
from localcloud.tpu_api.dispatcher import CallDispatcher
from localcloud.tpu_api.grpc_table import MethodRow, method_table

_DETAILS = "grpc-status-details-bin"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcServer:
    """Serves all methods of :mod:`localcloud.tpu_api.grpc_table` on one port of the loopback interface.

    :param dispatcher: answers the calls.
    """

    def __init__(self, dispatcher: CallDispatcher) -> None:
        self._dispatcher = dispatcher
        self._server: Any = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen and return ``host:port``.

        :raises RuntimeError: if the port is taken.
        """
        options = [("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options)
        by_service: dict[str, dict[str, Any]] = {}
        for row in method_table().values():
            service, _, method = row.path.lstrip("/").partition("/")
            by_service.setdefault(service, {})[method] = self._handler(row)
        handlers = [grpc.method_handlers_generic_handler(name, methods) for name, methods in by_service.items()]
        self._server.add_generic_rpc_handlers(tuple(handlers))
        bound = self._server.add_insecure_port(f"{host}:{port}")
        await self._server.start()
        return f"{host}:{bound}"

    async def close(self) -> None:
        """Stop listening; calls in flight are cut."""
        if self._server is not None:
            await self._server.stop(grace=None)

    def _handler(self, row: MethodRow) -> Any:
        async def serve(request: Any, context: Any) -> Any:
            return await self._serve(row.key, request, context)

        return grpc.unary_unary_rpc_method_handler(
            serve, request_deserializer=row.parse, response_serializer=row.serialize
        )

    async def _serve(self, key: str, request: Any, context: Any) -> Any:
        try:
            return await self._dispatcher.serve(key, request, "grpc")
        except CloudError as error:
            refusal = error
        await _refuse(context, refusal)


async def _refuse(context: Any, error: CloudError) -> None:
    context.set_trailing_metadata(((_DETAILS, error.status().SerializeToString()),))
    await context.abort(_CODES[error.code], error.message)
