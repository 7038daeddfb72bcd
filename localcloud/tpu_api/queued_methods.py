"""The queued resource methods of the TPU API: from request message to answer message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from google.cloud.tpu_v2.types import (
    CreateQueuedResourceRequest,
    DeleteQueuedResourceRequest,
    GetQueuedResourceRequest,
    ListQueuedResourcesRequest,
    ListQueuedResourcesResponse,
    QueuedResource,
    ResetQueuedResourceRequest,
)
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.rules.paging import page
from localcloud.rules.quota import Demand, Quota
from localcloud.tpu_state.operations import Operation
from localcloud.tpu_state.queued import QueuedBook
from localcloud.tpu_state.queued_record import QueuedRecord, build_queued
from localcloud.tpu_state.transitions import QUEUED_DELETABLE


class QueuedApi:
    """CreateQueuedResource, GetQueuedResource, ListQueuedResources, DeleteQueuedResource, ResetQueuedResource.

    :param queued: the queued resources.
    :param quota: the limits.
    :param held: everything that holds quota now.
    """

    def __init__(self, queued: QueuedBook, quota: Quota, held: Callable[[], Iterable[Demand]]) -> None:
        self._queued = queued
        self._world = queued.world
        self._quota = quota
        self._held = held
        self._requests: dict[tuple[str, str], Operation] = {}

    def create(self, request: CreateQueuedResourceRequest) -> Any:
        """CreateQueuedResource: the operation ends when the request is registered, not when the TPU is there."""
        parent = self._world.locate(request.parent)
        name = parent.child("queuedResources", request.queued_resource_id)
        if (known := self._remembered("create", name, request.request_id)) is not None:
            return known.render()
        record = build_queued(self._world, parent, request.queued_resource_id, request.queued_resource)
        if record.name in self._queued.records:
            raise errors.already_exists(record.name)
        self._quota.check(record.demand(), self._held())
        self._queued.records[record.name] = record
        operation = self._start(record, "create", request.request_id, partial(self._forget, record))
        if not operation.holds_resource:
            self._world.later(self._world.latencies.registering, partial(self._register, record, operation))
        return operation.render()

    def _forget(self, record: QueuedRecord) -> None:
        self._queued.records.pop(record.name, None)

    def _register(self, record: QueuedRecord, operation: Operation) -> None:
        if self._queued.records.get(record.name) is record and record.delete is None:
            self._queued.enqueue(record)
        self._queued.nodes.operations.succeed(operation, QueuedResource.pb(record.view()))

    def _start(self, record: QueuedRecord, verb: str, request_id: str, undo: Callable[[], None]) -> Operation:
        operation = self._queued.nodes.operations.start(record.where, verb, undo=undo)
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
        records, silent = self._world.visible(self._queued.records.values(), request.parent, "ListQueuedResources")
        chosen, token = page(records, lambda record: record.name, request.page_size, request.page_token)
        return ListQueuedResourcesResponse(
            queued_resources=[record.view() for record in chosen], next_page_token=token, unreachable=silent
        )

    def delete(self, request: DeleteQueuedResourceRequest) -> Any:
        """DeleteQueuedResource: with nodes left only in some states, or with ``force``."""
        name = self._world.locate(request.name, "queuedResources").full
        if (known := self._remembered("delete", name, request.request_id)) is not None:
            return known.render()
        record = self._queued.find(request.name)
        if record.delete is not None and not record.delete.done:
            return record.delete.render()
        if self._queued.live_nodes(record) and not request.force and record.state not in QUEUED_DELETABLE:
            raise errors.precondition(
                f"Queued resource '{name}' still has nodes; delete them first or set force (state {record.state})"
            )
        record.delete = operation = self._start(record, "delete", request.request_id, lambda: None)
        if not operation.holds_resource:
            self._queued.remove(record, partial(self._queued.nodes.operations.succeed, operation))
        return operation.render()

    def reset(self, request: ResetQueuedResourceRequest) -> Any:
        """ResetQueuedResource: not imitated, since what Google does then is not known here."""
        self._queued.find(request.name)
        raise CloudError(code_pb2.UNIMPLEMENTED, "The local cloud does not imitate ResetQueuedResource")
