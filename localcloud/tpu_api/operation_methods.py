# SPDX-License-Identifier: Apache-2.0
"""The methods of the Operations service: from request message to answer message."""

from __future__ import annotations

from typing import Any

from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.rules.paging import page
from localcloud.tpu_state.backend import Backend
from localcloud.tpu_state.operations import COLLECTION, OperationRegistry


class OperationMethods:
    """GetOperation, ListOperations, CancelOperation, DeleteOperation.

    :param backend: the project.
    :param operations: the operations.
    """

    def __init__(self, backend: Backend, operations: OperationRegistry) -> None:
        self._backend = backend
        self._operations = operations

    def get(self, request: Any) -> Any:
        """GetOperation."""
        return self._operations.find(request.name).render()

    def list(self, request: Any) -> Any:
        """ListOperations of one location."""
        where = self._backend.locate(request.name.removesuffix("/operations"))
        prefix = where.child(COLLECTION, "")
        mine = [operation for operation in self._operations.all() if operation.name.startswith(prefix)]
        chosen, token = page(mine, lambda operation: operation.name, request.page_size, request.page_token)
        rendered = [operation.render() for operation in chosen]
        return operations_pb2.ListOperationsResponse(operations=rendered, next_page_token=token)

    def cancel(self, request: Any) -> Any:
        """CancelOperation: noted in the metadata; TPU operations run to their end, a never-ending one is ended."""
        operation = self._operations.find(request.name)
        operation.metadata.cancel_requested = True
        if operation.action() == "never":
            error = CloudError(code_pb2.CANCELLED, errors.eid("The operation was cancelled"))
            self._operations.end(operation, error=error)
        return empty_pb2.Empty()

    def delete(self, request: Any) -> Any:
        """DeleteOperation: forget a finished operation."""
        operation = self._operations.find(request.name)
        if not operation.done:
            raise errors.precondition(f"Operation '{operation.name}' is not done")
        self._operations.remove(operation)
        return empty_pb2.Empty()
