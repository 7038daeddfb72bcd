# SPDX-License-Identifier: Apache-2.0
"""Answers every call of the TPU API, from either transport: applies scripted faults and keeps the logs of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from google.longrunning import operations_pb2
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2

from localcloud.faults import Fault, FaultRegistry
from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.tpu_api.audit import ActivityLog
from localcloud.tpu_api.service import TpuService
from localcloud.tpu_state.call_log import CallLog, LoggedCall

_NO_ANSWER = -1


class CallDispatcher:
    """Answers calls.

    :param service: carries the calls out.
    :param calls: logs every call.
    :param activity: logs creates and deletes as Google does; None: no such log.
    """

    def __init__(self, service: TpuService, calls: CallLog, activity: ActivityLog | None = None) -> None:
        self._service = service
        self._state = service.state
        self._calls = calls
        self._activity = activity

    @property
    def faults(self) -> FaultRegistry:
        """Scripted faults."""
        return self._state.backend.faults

    async def serve(self, key: str, request: Any, transport: str) -> Any:
        """Answer one call.

        :param key: ``Service/Method``.
        :param request: its request message.
        :param transport: ``grpc``, or ``rest``, which is how a TPU VM asks.
        :raises CloudError: the refusal, which has been logged.
        """
        clock = self._state.backend.timeline.clock
        resource = resource_of(request)
        arrived = clock.now().isoformat()
        method = key.partition("/")[2]
        fault = self.faults.take("tpu.call", method=method, name=resource, transport=transport)
        code = _NO_ANSWER
        try:
            answer = await self._answer(key, request, fault)
            code = code_pb2.OK
        except CloudError as error:
            code = error.code
            raise
        finally:
            # Before the answer leaves: its caller may look the call up at once.
            self._calls.add(LoggedCall(key, resource, arrived, code, fault.id if fault else ""))
        return answer

    async def _answer(self, key: str, request: Any, fault: Fault | None) -> Any:
        action = str(fault.params.get("action", "error")) if fault else ""
        if fault is not None and action == "error":
            raise scripted_error(fault)
        if action == "hang":
            await asyncio.Event().wait()
        if fault is not None and action == "delay":
            await self._state.backend.timeline.clock.sleep(float(fault.params.get("seconds", 1.0)))
        answer = await self._logged(key, request)
        if action == "lose-response":
            # The call has taken effect, but its caller gets no answer.
            raise CloudError(code_pb2.UNAVAILABLE, "Socket closed")
        return answer

    async def _logged(self, key: str, request: Any) -> Any:
        """Dispatch, and keep the log of creates and deletes; a call that a scripted error answers never arrives."""
        try:
            answer = await self._dispatch(key, request)
        except CloudError as error:
            if self._activity is not None:
                self._activity.refused(key, resource_of(request), error)
            raise
        if self._activity is not None and isinstance(answer, operations_pb2.Operation):
            begun = self._state.operations.peek(answer.name)
            if begun is not None:
                self._activity.accepted(key, resource_of(request), begun)
        return answer

    async def _dispatch(self, key: str, request: Any) -> Any:
        if key == "Operations/WaitOperation":
            return await self._wait(request)
        self._check_zone(key, resource_of(request))
        method: Callable[[Any], Any] | None = self._service.methods.get(key)
        if method is None:
            raise CloudError(code_pb2.UNIMPLEMENTED, f"The local cloud does not know {key}")
        return method(request)

    def _check_zone(self, key: str, resource: str) -> None:
        """Let no call reach a resource in a zone that is away; a list names the zone as unreachable instead.

        :raises CloudError: UNAVAILABLE.
        """
        zone = resource.partition("/locations/")[2].partition("/")[0]
        if zone in self._state.backend.unreachable and "/List" not in key:
            raise errors.unavailable(zone)

    async def _wait(self, request: Any) -> Any:
        """WaitOperation: answer when the operation is done or the time is up, whichever is first."""
        operation = self._state.operations.find(request.name)
        ended = asyncio.Event()
        operation.when_done(ended.set)
        self._state.backend.later(request.timeout.ToTimedelta().total_seconds() or 60.0, ended.set)
        await ended.wait()
        return operation.render()


def resource_of(request: Any) -> str:
    """Return the name a request is about: of the resource to be created, of the resource, or its parent."""
    for field, collection in (("node_id", "nodes"), ("queued_resource_id", "queuedResources")):
        identifier = getattr(request, field, "")
        if identifier:
            return f"{request.parent}/{collection}/{identifier}"
    node = getattr(request, "node", None)
    return str(getattr(request, "name", "") or getattr(request, "parent", "") or getattr(node, "name", ""))


def scripted_error(fault: Fault) -> CloudError:
    """Return the error of a ``tpu.call`` fault: ``code``, ``message``, ``reason``, ``metadata``, ``retry_after``."""
    params = fault.params
    details: list[Any] = []
    if "reason" in params:
        metadata = {name: str(value) for name, value in params.get("metadata", {}).items()}
        details.append(errors.error_info(str(params["reason"]), **metadata))
    if "retry_after" in params:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(int(float(params["retry_after"]) * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    code = int(params.get("code", code_pb2.UNAVAILABLE))
    message = str(params.get("message") or f"scripted by {fault.id}")
    return CloudError(code, message, details)
