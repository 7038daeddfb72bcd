# SPDX-License-Identifier: Apache-2.0
"""The TPU API over plain HTTP, as far as a TPU VM needs it to delete itself: get, delete, operations.

Beside it one call of Cloud Resource Manager, which tells an account its rights.

https://cloud.google.com/tpu/docs/reference/rest
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web
from google.cloud.tpu_v2.types import (
    DeleteNodeRequest,
    DeleteQueuedResourceRequest,
    GetNodeRequest,
    GetQueuedResourceRequest,
)
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2, json_format
from google.rpc import code_pb2, error_details_pb2

from localcloud.rules.errors import CloudError
from localcloud.tpu_api.dispatcher import CallDispatcher

# What may be packed into an operation or an error must be known to be written as JSON.
_PACKED = (empty_pb2.Empty, error_details_pb2.ErrorInfo)

# https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
_HTTP = {
    code_pb2.CANCELLED: 499,
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.DEADLINE_EXCEEDED: 504,
    code_pb2.NOT_FOUND: 404,
    code_pb2.ALREADY_EXISTS: 409,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.UNAUTHENTICATED: 401,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.FAILED_PRECONDITION: 400,
    code_pb2.ABORTED: 409,
    code_pb2.OUT_OF_RANGE: 400,
    code_pb2.UNIMPLEMENTED: 501,
    code_pb2.UNAVAILABLE: 503,
}

Build = Callable[[str, web.Request], Any]
_CALLS: dict[tuple[str, str], tuple[str, Build]] = {
    ("GET", "nodes"): ("Tpu/GetNode", lambda name, _: GetNodeRequest(name=name)),
    ("DELETE", "nodes"): ("Tpu/DeleteNode", lambda name, _: DeleteNodeRequest(name=name)),
    ("GET", "queuedResources"): ("Tpu/GetQueuedResource", lambda name, _: GetQueuedResourceRequest(name=name)),
    ("DELETE", "queuedResources"): ("Tpu/DeleteQueuedResource", lambda name, request: _delete_queued(name, request)),
    ("GET", "operations"): (
        "Operations/GetOperation",
        lambda name, _: operations_pb2.GetOperationRequest(name=name),
    ),
}


class RestServer:
    """Serves ``/v2/projects/P/locations/Z/COLLECTION/ID`` on one port of the loopback interface.

    :param dispatcher: returns the dispatcher; called when a call arrives, since it starts after this server.
    """

    def __init__(self, dispatcher: Callable[[], CallDispatcher]) -> None:
        self._dispatcher = dispatcher
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen and return the base URL."""
        app = web.Application()
        app.router.add_route("*", "/v2/{name:.+}", self._serve)
        app.router.add_post("/v1/projects/{project}:testIamPermissions", self._test_permissions)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening; calls in flight are cut."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        call = _CALLS.get((request.method, name.split("/")[-2] if "/" in name else ""))
        try:
            if call is None:
                raise CloudError(code_pb2.UNIMPLEMENTED, f"The local cloud has no REST call {request.method} {name}")
            key, build = call
            return web.json_response(_document(await self._dispatcher().serve(key, build(name, request), "rest")))
        except CloudError as error:
            return _refusal(error)

    async def _test_permissions(self, request: web.Request) -> web.Response:
        """Every permission is held but those that a fault denies.

        https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions
        """
        faults, project = self._dispatcher().faults, request.match_info["project"]
        asked = (await request.json())["permissions"]
        held = [each for each in asked if faults.take("iam.test", permission=each, project=project) is None]
        return web.json_response({"permissions": held} if held else {})


def _delete_queued(name: str, request: web.Request) -> DeleteQueuedResourceRequest:
    query = request.query
    force = query.get("force", "false").lower() == "true"
    return DeleteQueuedResourceRequest(name=name, force=force, request_id=query.get("requestId", ""))


def _document(message: Any) -> Any:
    plain = type(message).pb(message) if hasattr(type(message), "pb") else message
    return json_format.MessageToDict(plain)


def _refusal(error: CloudError) -> web.Response:
    status = error.status()
    http = _HTTP.get(error.code, 500)
    details = [json_format.MessageToDict(detail) for detail in status.details]
    body = {"code": http, "message": error.message, "status": code_pb2.Code.Name(error.code), "details": details}
    return web.json_response({"error": body}, status=http)
