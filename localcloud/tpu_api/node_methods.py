# SPDX-License-Identifier: Apache-2.0
"""The node methods of the TPU API: from request message to answer message."""

from __future__ import annotations

from collections import deque
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
from localcloud.tpu_state.cloud_state import CloudState
from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.requests import build
from localcloud.tpu_state.operations import Operation

State = Node.State
_MINUTE = 60.0


class NodeMethods:
    """CreateNode, GetNode, ListNodes, DeleteNode, StartNode, StopNode.

    :param state: the nodes, and what changes them.
    """

    def __init__(self, state: CloudState) -> None:
        self._state = state
        self._nodes = state.nodes
        self._operations = state.operations
        self._backend = state.backend
        self._recent_creates: deque[float] = deque()

    def create(self, request: CreateNodeRequest) -> Any:
        """CreateNode: capacity is not looked at here, a stock-out arrives in the operation."""
        parent = self._backend.locate(request.parent)
        self._count_create()
        record = build(self._backend, parent, request.node_id, request.node)
        if record.name in self._nodes.records:
            raise errors.already_exists(record.name)
        self._state.check_quota(record.demand())
        self._nodes.add(record)
        operation = self._operations.start(record.where, "create", undo=partial(self._state.shutdown.vanish, record))
        record.create = operation
        settings = self._backend.settings
        refusal = settings.project.refusal(record.template, settings.project_number)
        if refusal is not None and not operation.holds_resource:
            self._backend.later(settings.latencies.failing, partial(self._refuse, record, refusal))
        elif not operation.holds_resource:
            later = self._backend.latencies.creating + operation.lateness
            self._backend.later(later, partial(self._boot, record))
        return operation.render()

    def _refuse(self, record: NodeRecord, refusal: CloudError) -> None:
        if record.create is not None:
            self._operations.fail(record.create, refusal)
        self._state.shutdown.vanish(record)

    def _boot(self, record: NodeRecord) -> None:
        if record.state == State.CREATING:
            self._state.boot.start(record)

    def _count_create(self) -> None:
        limit = self._backend.settings.creates_per_minute
        now = self._backend.timeline.clock.monotonic()
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
        records, silent = self._backend.visible(self._nodes.records.values(), request.parent, "ListNodes")
        chosen, token = page(records, lambda record: record.name, request.page_size, request.page_token)
        return ListNodesResponse(nodes=[record.view() for record in chosen], next_page_token=token, unreachable=silent)

    def delete(self, request: DeleteNodeRequest) -> Any:
        """DeleteNode: a second call while DELETING gets the operation of the first."""
        record = self._nodes.find(request.name)
        if record.delete is not None and not record.delete.done:
            return record.delete.render()
        before = record.state
        operation = self._operations.start(record.where, "delete", undo=lambda: self._revive(record, before))
        record.delete = operation
        if operation.holds_resource:
            self._nodes.move(record, State.DELETING, by_user=True)
        else:
            done = partial(self._operations.succeed, operation)
            self._state.shutdown.remove(record, by_user=True, done=done)
        return operation.render()

    def _revive(self, record: NodeRecord, before: int) -> None:
        """Put a node back that could not be deleted."""
        record.delete = None
        if record.name in self._nodes.records:
            self._nodes.force(record, before, by_user=True)

    def stop(self, request: StopNodeRequest) -> Any:
        """StopNode: the VMs end, the name and the quota stay."""
        record = self._restartable(request.name, State.READY)
        operation = self._operations.start(record.where, "stop")

        def ended(stopped: bool) -> None:
            if stopped:
                self._operations.succeed(operation, Node.pb(record.view()))
            else:
                text = f"Node '{record.name}' was deleted while it was stopped"
                self._operations.fail(operation, CloudError(code_pb2.ABORTED, errors.eid(text)))

        self._state.shutdown.stop(record, by_user=True, stopped=ended)
        return operation.render()

    def start(self, request: StartNodeRequest) -> Any:
        """StartNode: boots the VMs of a stopped node anew, on the same disks."""
        record = self._restartable(request.name, State.STOPPED)
        operation = self._operations.start(record.where, "start")
        self._nodes.move(record, State.STARTING, by_user=True)
        record.create = operation
        self._backend.later(self._backend.latencies.changing, partial(self._boot_again, record, operation))
        return operation.render()

    def _boot_again(self, record: NodeRecord, operation: Operation) -> None:
        if record.create is operation:
            self._state.boot.start(record)

    def _restartable(self, name: str, needed: int) -> NodeRecord:
        record = self._nodes.find(name)
        if record.kind.hosts > 1 or record.queued:
            raise errors.precondition(
                "Slices with several hosts and nodes of queued resources cannot be stopped, only deleted"
            )
        if record.state != needed:
            raise errors.precondition(f"Node '{record.name}' is in state {record.state}, not {State(needed).name}")
        return record
