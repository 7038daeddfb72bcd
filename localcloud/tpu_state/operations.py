# SPDX-License-Identifier: Apache-2.0
"""Long-running operations; their state is separate from the state of the resource they are about.

An operation may end with an error although the node comes up, never end although it does, or be forgotten; clients
have met all of these. Faults at ``tpu.operation`` choose which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.cloud.tpu_v2.types import OperationMetadata
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.rpc import code_pb2

from localcloud.faults import Fault
from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.rules.names import ResourceName
from localcloud.tpu_state.backend import Backend

COLLECTION = "operations"


@dataclass
class Operation:
    """One operation.

    :ivar message: what GetOperation answers.
    :ivar metadata: target, verb, times; packed into the message on every read.
    :ivar fault: the scripted fault that strikes it, if any.
    """

    message: Any
    metadata: OperationMetadata
    fault: Fault | None = None
    _waiters: list[Callable[[], None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Full name."""
        return str(self.message.name)

    @property
    def done(self) -> bool:
        """Whether it has ended, either way."""
        return bool(self.message.done)

    def action(self) -> str:
        """Return what the fault does, or ""."""
        return str(self.fault.params.get("action", "error")) if self.fault else ""

    @property
    def holds_resource(self) -> bool:
        """Whether the resource does not follow: an error undoes it, ``"resource": "stuck"`` keeps it where it is.

        ``"resource": "proceeds"`` on an error lets the resource come up although the operation says it failed.
        """
        if self.fault is None or self.lateness > 0:
            return False
        default = "undone" if self.action() == "error" else "proceeds"
        return str(self.fault.params.get("resource", default)) != "proceeds"

    @property
    def lateness(self) -> float:
        """Seconds by which a node that is created is late too: ``"resource": "late"`` with a slow operation."""
        return self._slowness if self.fault is not None and self.fault.params.get("resource") == "late" else 0.0

    @property
    def delay(self) -> float:
        """Seconds from when the resource is where it should be until a slow operation says so."""
        return self._slowness - self.lateness

    @property
    def _slowness(self) -> float:
        if self.fault is None or self.action() != "slow":
            return 0.0
        return float(self.fault.params.get("seconds", 1.0))

    def render(self) -> Any:
        """Return a copy of the message with current metadata: what was answered once must not change later."""
        shown = operations_pb2.Operation()
        shown.CopyFrom(self.message)
        shown.metadata.Pack(OperationMetadata.pb(self.metadata))
        return shown

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once the operation has ended; at once if it has."""
        if self.done:
            callback()
        else:
            self._waiters.append(callback)

    def announce(self) -> None:
        """Run the callbacks of :meth:`when_done`."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()


class OperationRegistry:
    """All operations of the project; they outlive the resources they are about.

    :param backend: clock, randomness and faults.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._operations: dict[str, Operation] = {}

    def start(self, target: ResourceName, verb: str, undo: Callable[[], None] | None = None) -> Operation:
        """Begin an operation on a resource.

        :param verb: ``create``, ``delete``, ``update``, ``start`` or ``stop``.
        :param undo: called when a fault ends the operation with an error and the resource is to follow.
        """
        backend = self._backend
        name = target.child(
            COLLECTION, f"operation-{backend.rng.getrandbits(48):012x}-{backend.rng.getrandbits(32):08x}"
        )
        metadata = OperationMetadata(
            create_time=backend.stamp(), target=target.full, verb=verb, api_version="v2", cancel_requested=False
        )
        fault = backend.faults.take("tpu.operation", verb=verb, target=target.full)
        operation = Operation(operations_pb2.Operation(name=name), metadata, fault)
        self._operations[name] = operation
        if fault is not None and operation.action() == "error":
            self._plan_error(operation, fault.params, undo)
        return operation

    def _plan_error(self, operation: Operation, params: Mapping[str, Any], undo: Callable[[], None] | None) -> None:
        code = int(params.get("code", code_pb2.INTERNAL))
        error = CloudError(code, str(params.get("message") or errors.internal().message))

        def fail() -> None:
            self.end(operation, error=error)
            if undo is not None and operation.holds_resource:
                undo()

        self._backend.later(float(params.get("after", self._backend.latencies.failing)), fail)

    def succeed(self, operation: Operation, response: Any = None) -> None:
        """Report that the resource is where it should be; whether and when the operation says so is up to its fault.

        :param response: protobuf message; an empty one if none.
        """
        answer = empty_pb2.Empty() if response is None else response
        action = operation.action()
        if action in {"never", "error"}:
            return
        if operation.delay > 0:
            self._backend.later(operation.delay, lambda: self.end(operation, response=answer))
            return
        self.end(operation, response=answer)

    def fail(self, operation: Operation, error: CloudError) -> None:
        """Report that the resource did not get there."""
        if operation.action() not in {"never", "error"}:
            self.end(operation, error=error)

    def end(self, operation: Operation, *, response: Any = None, error: CloudError | None = None) -> None:
        """End an operation with a response or an error, whatever its fault says; an ended one stays as it is."""
        if operation.done:
            return
        operation.metadata.end_time = self._backend.stamp()
        operation.message.done = True
        if error is not None:
            operation.message.error.CopyFrom(error.status())
        else:
            operation.message.response.Pack(response)
        operation.announce()

    def all(self) -> list[Operation]:
        """Return all operations, oldest first, those that a fault makes the cloud forget included."""
        return [*self._operations.values()]

    def peek(self, name: str) -> Operation | None:
        """Return an operation by its full name, also one that a fault makes the cloud forget; None if there is none."""
        return self._operations.get(name)

    def remove(self, operation: Operation) -> None:
        """Forget an operation."""
        del self._operations[operation.name]

    def find(self, name: str) -> Operation:
        """Return an operation by name.

        :raises CloudError: NOT_FOUND, also for one that a fault has made the cloud forget.
        """
        full = self._backend.locate(name, COLLECTION).full
        operation = self._operations.get(full)
        if operation is None or operation.action() == "forget":
            raise errors.not_found(full)
        return operation
