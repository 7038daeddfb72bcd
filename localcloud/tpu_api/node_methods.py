"""The node methods of the TPU API: from request message to answer message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from google.cloud.tpu_v2.types import (
    CreateNodeRequest,
    DeleteNodeRequest,
    GetNodeRequest,
    ListNodesRequest,
    ListNodesResponse,
    Node,
    StartNodeRequest,
    StopNodeRequest,
)
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.rules.paging import page
from localcloud.rules.quota import Demand, Quota
from localcloud.tpu_state.node_record import NodeRecord
from localcloud.tpu_state.node_requests import build
from localcloud.tpu_state.nodes import NodeBook
from localcloud.tpu_state.operations import Operation

State = Node.State
_MINUTE = 60.0


class NodeApi:
    """CreateNode, GetNode, ListNodes, DeleteNode, StartNode, StopNode.

    :param nodes: the nodes.
    :param quota: the limits.
    :param held: everything that holds quota now.
    """

    def __init__(self, nodes: NodeBook, quota: Quota, held: Callable[[], Iterable[Demand]]) -> None:
        self._nodes = nodes
        self._world = nodes.world
        self._quota = quota
        self._held = held
        self._recent_creates: deque[float] = deque()

    def create(self, request: CreateNodeRequest) -> Any:
        """CreateNode: capacity is not looked at here, a stock-out arrives in the operation."""
        parent = self._world.locate(request.parent)
        self._count_create()
        record = build(self._world, parent, request.node_id, request.node)
        if record.name in self._nodes.records:
            raise errors.already_exists(record.name)
        self._quota.check(record.demand(), self._held())
        self._nodes.enter(record)
        operation = self._nodes.operations.start(record.where, "create", undo=partial(self._nodes.vanish, record))
        record.create = operation
        if not operation.holds_resource:
            later = self._world.latencies.creating + operation.lateness
            self._world.later(later, partial(self._boot, record))
        return operation.render()

    def _boot(self, record: NodeRecord) -> None:
        if record.state == State.CREATING:
            self._nodes.boot(record, self._nodes.abandon)

    def _count_create(self) -> None:
        limit = self._world.settings.creates_per_minute
        now = self._world.timeline.clock.monotonic()
        while self._recent_creates and self._recent_creates[0] <= now - _MINUTE:
            self._recent_creates.popleft()
        if limit and len(self._recent_creates) >= limit:
            raise errors.create_rate(limit)
        self._recent_creates.append(now)

    def get(self, request: GetNodeRequest) -> Node:
        """GetNode."""
        return self._nodes.find(request.name).view()

    def list(self, request: ListNodesRequest) -> ListNodesResponse:
        """ListNodes: of one zone, or of all that answer with ``-``."""
        records, silent = self._world.visible(self._nodes.records.values(), request.parent, "ListNodes")
        chosen, token = page(records, lambda record: record.name, request.page_size, request.page_token)
        return ListNodesResponse(nodes=[record.view() for record in chosen], next_page_token=token, unreachable=silent)

    def delete(self, request: DeleteNodeRequest) -> Any:
        """DeleteNode: a second call while DELETING gets the operation of the first."""
        record = self._nodes.find(request.name)
        if record.delete is not None and not record.delete.done:
            return record.delete.render()
        before = record.state
        operations = self._nodes.operations
        operation = operations.start(record.where, "delete", undo=lambda: self._revive(record, before))
        record.delete = operation
        if operation.holds_resource:
            self._nodes.move(record, State.DELETING, by_user=True)
        else:
            self._nodes.remove(record, by_user=True, done=lambda: operations.succeed(operation))
        return operation.render()

    def _revive(self, record: NodeRecord, before: int) -> None:
        """Put a node back that could not be deleted."""
        record.delete = None
        if record.name in self._nodes.records:
            self._nodes.force(record, before, by_user=True)

    def stop(self, request: StopNodeRequest) -> Any:
        """StopNode: the VMs end, the name and the quota stay."""
        record = self._restartable(request.name, State.READY)
        operation = self._nodes.operations.start(record.where, "stop")
        self._nodes.move(record, State.STOPPING, by_user=True)
        record.machines = ()

        def stopped() -> None:
            if record.state != State.STOPPING:
                text = f"Node '{record.name}' was deleted while it was stopped"
                self._nodes.operations.fail(operation, CloudError(code_pb2.ABORTED, errors.eid(text)))
                return
            self._nodes.move(record, State.STOPPED, by_user=True)
            self._nodes.operations.succeed(operation, Node.pb(record.view()))

        later = partial(self._world.later, self._world.latencies.changing, stopped)
        self._world.machines.kill(record.name, later)
        return operation.render()

    def start(self, request: StartNodeRequest) -> Any:
        """StartNode: boots the VMs of a stopped node anew, on the same disks."""
        record = self._restartable(request.name, State.STOPPED)
        operation = self._nodes.operations.start(record.where, "start")
        self._nodes.move(record, State.STARTING, by_user=True)
        record.create = operation
        self._world.later(self._world.latencies.changing, partial(self._boot_again, record, operation))
        return operation.render()

    def _boot_again(self, record: NodeRecord, operation: Operation) -> None:
        if record.create is operation:
            self._nodes.boot(record, self._nodes.abandon)

    def _restartable(self, name: str, needed: int) -> NodeRecord:
        record = self._nodes.find(name)
        if record.kind.hosts > 1 or record.queued:
            raise errors.precondition(
                "Slices with several hosts and nodes of queued resources cannot be stopped, only deleted"
            )
        if record.state != needed:
            raise errors.precondition(f"Node '{record.name}' is in state {record.state}, not {State(needed).name}")
        return record
