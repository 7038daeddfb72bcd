"""Long-running operations: their truth is separate from the truth of the resource they are about.

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
from localcloud.rules.paging import page
from localcloud.tpu_state.backend import World

_COLLECTION = "operations"


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
        """Call back once when the operation has ended; at once if it has."""
        if self.done:
            callback()
        else:
            self._waiters.append(callback)

    def announce(self) -> None:
        """Call back everybody who waits."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()


class OperationBook:
    """All operations of the project; they outlive the resources they are about.

    :param world: clock, chance and faults.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._operations: dict[str, Operation] = {}

    def start(self, target: ResourceName, verb: str, undo: Callable[[], None] | None = None) -> Operation:
        """Begin an operation on a resource.

        :param verb: ``create``, ``delete``, ``update``, ``start`` or ``stop``.
        :param undo: called when a fault ends the operation with an error and the resource is to follow.
        """
        world = self._world
        name = target.child(_COLLECTION, f"operation-{world.rng.getrandbits(48):012x}-{world.rng.getrandbits(32):08x}")
        metadata = OperationMetadata(
            create_time=world.stamp(), target=target.full, verb=verb, api_version="v2", cancel_requested=False
        )
        fault = world.faults.take("tpu.operation", verb=verb, target=target.full)
        operation = Operation(operations_pb2.Operation(name=name), metadata, fault)
        self._operations[name] = operation
        if fault is not None and operation.action() == "error":
            self._plan_error(operation, fault.params, undo)
        return operation

    def _plan_error(self, operation: Operation, params: Mapping[str, Any], undo: Callable[[], None] | None) -> None:
        code = int(params.get("code", code_pb2.INTERNAL))
        error = CloudError(code, str(params.get("message") or errors.internal().message))

        def fail() -> None:
            self._end(operation, error=error)
            if undo is not None and operation.holds_resource:
                undo()

        self._world.later(float(params.get("after", self._world.latencies.failing)), fail)

    def succeed(self, operation: Operation, response: Any = None) -> None:
        """Report that the resource is where it should be; whether and when the operation says so is up to its fault.

        :param response: protobuf message; an empty one if none.
        """
        answer = empty_pb2.Empty() if response is None else response
        action = operation.action()
        if action in {"never", "error"}:
            return
        if operation.delay > 0:
            self._world.later(operation.delay, lambda: self._end(operation, response=answer))
            return
        self._end(operation, response=answer)

    def fail(self, operation: Operation, error: CloudError) -> None:
        """Report that the resource did not get there."""
        if operation.action() not in {"never", "error"}:
            self._end(operation, error=error)

    def _end(self, operation: Operation, *, response: Any = None, error: CloudError | None = None) -> None:
        if operation.done:
            return
        operation.metadata.end_time = self._world.stamp()
        operation.message.done = True
        if error is not None:
            operation.message.error.CopyFrom(error.status())
        else:
            operation.message.response.Pack(response)
        operation.announce()

    def all(self) -> list[Operation]:
        """Return all operations, oldest first."""
        return [*self._operations.values()]

    def begun(self, name: str) -> Operation | None:
        """Return an operation by its full name, also one that a fault makes the cloud forget; None if there is none."""
        return self._operations.get(name)

    def find(self, name: str) -> Operation:
        """Return an operation by name.

        :raises CloudError: NOT_FOUND, also for one that a fault has made the cloud forget.
        """
        full = self._world.locate(name, _COLLECTION).full
        operation = self._operations.get(full)
        if operation is None or operation.action() == "forget":
            raise errors.not_found(full)
        return operation

    def get(self, request: Any) -> Any:
        """GetOperation."""
        return self.find(request.name).render()

    def list(self, request: Any) -> Any:
        """ListOperations of one location."""
        where = self._world.locate(request.name.removesuffix("/operations"))
        prefix = where.child(_COLLECTION, "")
        mine = [operation for name, operation in self._operations.items() if name.startswith(prefix)]
        chosen, token = page(mine, lambda operation: operation.name, request.page_size, request.page_token)
        rendered = [operation.render() for operation in chosen]
        return operations_pb2.ListOperationsResponse(operations=rendered, next_page_token=token)

    def cancel(self, request: Any) -> Any:
        """CancelOperation: noted in the metadata; TPU operations run to their end, a never-ending one is ended."""
        operation = self.find(request.name)
        operation.metadata.cancel_requested = True
        if operation.action() == "never":
            self._end(operation, error=CloudError(code_pb2.CANCELLED, errors.eid("The operation was cancelled")))
        return empty_pb2.Empty()

    def delete(self, request: Any) -> Any:
        """DeleteOperation: forget a finished operation."""
        operation = self.find(request.name)
        if not operation.done:
            raise errors.precondition(f"Operation '{operation.name}' is not done")
        del self._operations[operation.name]
        return empty_pb2.Empty()
