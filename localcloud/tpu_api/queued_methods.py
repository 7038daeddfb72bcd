# SPDX-License-Identifier: Apache-2.0
"""The queued resource methods of the TPU API: from request message to answer message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from google.cloud.tpu_v2.types import (
    CreateQueuedResourceRequest,
    DeleteQueuedResourceRequest,
    GetQueuedResourceRequest,
    ListQueuedResourcesRequest,
    ListQueuedResourcesResponse,
    QueuedResource,
    QueuedResourceState,
    ResetQueuedResourceRequest,
)
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.rules.paging import page
from localcloud.tpu_state.cloud_state import CloudState
from localcloud.tpu_state.operations import Operation
from localcloud.tpu_state.queued.record import QueuedRecord, build_queued
from localcloud.tpu_state.transitions import QUEUED_DELETABLE


class QueuedResourceMethods:
    """CreateQueuedResource, GetQueuedResource, ListQueuedResources, DeleteQueuedResource, ResetQueuedResource.

    :param state: the queued resources, and what changes them.
    """

    def __init__(self, state: CloudState) -> None:
        self._state = state
        self._queued = state.queued
        self._operations = state.operations
        self._backend = state.backend
        self._requests: dict[tuple[str, str], Operation] = {}

    def create(self, request: CreateQueuedResourceRequest) -> Any:
        """CreateQueuedResource: the operation ends when the request is registered, not when the TPU is there."""
        parent = self._backend.locate(request.parent)
        name = parent.child("queuedResources", request.queued_resource_id)
        if (known := self._remembered("create", name, request.request_id)) is not None:
            return known.render()
        record = build_queued(self._backend, parent, request.queued_resource_id, request.queued_resource)
        if record.name in self._queued.records:
            raise errors.already_exists(record.name)
        self._state.check_quota(record.demand())
        self._queued.records[record.name] = record
        operation = self._start(record, "create", request.request_id, partial(self._forget, record))
        if not operation.holds_resource:
            self._backend.later(self._backend.latencies.registering, partial(self._register, record, operation))
        return operation.render()

    def _forget(self, record: QueuedRecord) -> None:
        self._queued.records.pop(record.name, None)

    def _register(self, record: QueuedRecord, operation: Operation) -> None:
        if self._queued.holds(record) and record.delete is None:
            self._state.provisioning.enqueue(record)
        self._operations.succeed(operation, QueuedResource.pb(record.view()))

    def _start(self, record: QueuedRecord, verb: str, request_id: str, undo: Callable[[], None]) -> Operation:
        operation = self._operations.start(record.where, verb, undo=undo)
        if request_id:
            self._requests[verb, request_id] = operation
        return operation

    def _remembered(self, verb: str, name: str, request_id: str) -> Operation | None:
        """Return the operation of an earlier call with this request id: a repeated call changes nothing."""
        known = self._requests.get((verb, request_id))
        if known is not None and known.metadata.target != name:
            raise errors.invalid(
                f"Cloud TPU received a bad request. The request id {request_id} was used for another call"
            )
        return known

    def get(self, request: GetQueuedResourceRequest) -> QueuedResource:
        """GetQueuedResource."""
        return self._queued.find(request.name).view()

    def list(self, request: ListQueuedResourcesRequest) -> ListQueuedResourcesResponse:
        """ListQueuedResources: of one zone, or of all that answer with ``-``."""
        records, silent = self._backend.visible(self._queued.records.values(), request.parent, "ListQueuedResources")
        chosen, token = page(records, lambda record: record.name, request.page_size, request.page_token)
        return ListQueuedResourcesResponse(
            queued_resources=[record.view() for record in chosen], next_page_token=token, unreachable=silent
        )

    def delete(self, request: DeleteQueuedResourceRequest) -> Any:
        """DeleteQueuedResource: with nodes left only in some states, or with ``force``."""
        name = self._backend.locate(request.name, "queuedResources").full
        if (known := self._remembered("delete", name, request.request_id)) is not None:
            return known.render()
        record = self._queued.find(request.name)
        if record.delete is not None and not record.delete.done:
            return record.delete.render()
        if self._state.suspension.live_nodes(record) and not request.force and record.state not in QUEUED_DELETABLE:
            raise errors.precondition(
                f"Queued resource '{name}' still has nodes; delete them first or set force (state {record.state})"
            )
        record.delete = operation = self._start(record, "delete", request.request_id, partial(self._revive, record))
        if operation.holds_resource:
            record.shown_state = QueuedResourceState.State.DELETING
        else:
            self._state.suspension.delete(record, partial(self._operations.succeed, operation))
        return operation.render()

    def _revive(self, record: QueuedRecord) -> None:
        """Show a request that could not be deleted as it was."""
        record.shown_state = None

    def reset(self, request: ResetQueuedResourceRequest) -> Any:
        """ResetQueuedResource: not imitated, since what Google does then is not known here."""
        self._queued.find(request.name)
        raise CloudError(code_pb2.UNIMPLEMENTED, "The local cloud does not imitate ResetQueuedResource")
