# SPDX-License-Identifier: Apache-2.0
"""The verbs of the Cloud TPU API, asynchronous, each with a timeout and with our errors.

Operations are polled by name with :meth:`TPUClient.operation`: the clients' own ``result()`` gives up after 900 s,
and the asynchronous one loses the error code and does not survive a single UNAVAILABLE
(https://github.com/googleapis/python-api-core/issues/722).
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from airflow_tpu.clients.clock import WALL, Clock
from airflow_tpu.clients.tpu_calls import APIEndpoint, Listing, TPUCalls
from airflow_tpu.clients.tpu_messages import (
    OperationView,
    Stamp,
    to_create_node,
    to_create_queued,
    to_host_keys,
    to_operation_view,
    to_queued_view,
    to_view,
)
from airflow_tpu.clients.tpu_retry import CallTiming, is_answer
from airflow_tpu.consequences import MAY_BE_CREATED, NOTHING_CREATED, stated
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.errors import HostKeysHidden, ResourceNotFound, TPUError, TransientError

if TYPE_CHECKING:
    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import QueuedView, TPUSpec, TPUView


class TPUClient:
    """Asynchronous context manager around one connection to the Cloud TPU API.

    :param endpoint: address and credentials of the API.
    :param timing: bounds of each call.
    :param clock: for every wait on the API.
    """

    def __init__(self, endpoint: APIEndpoint, timing: CallTiming | None = None, clock: Clock = WALL) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self.calls = TPUCalls(endpoint, timing or CallTiming())

    async def __aenter__(self) -> TPUClient:
        self.calls.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.calls.close()

    async def nodes(self, zone: str = "-") -> Listing[TPUView]:
        """Every node of the project, those of other users included."""
        from google.cloud import tpu_v2

        request = tpu_v2.ListNodesRequest(parent=self.calls.parent(zone), page_size=1000)
        return await self.calls.listing(self.calls.client.list_nodes, request, to_view)

    async def queued_resources(self, zone: str = "-") -> Listing[QueuedView]:
        """Every queued resource of the project, dead ones included: they hold quota until deleted."""
        from google.cloud import tpu_v2

        request = tpu_v2.ListQueuedResourcesRequest(parent=self.calls.parent(zone), page_size=1000)
        return await self.calls.listing(self.calls.client.list_queued_resources, request, to_queued_view)

    async def node(self, name: ResourceName) -> TPUView:
        """One node.

        :raises ResourceNotFound: the API does not know it.
        """
        return to_view(await self.calls.call(self.calls.client.get_node, name, name=str(name)))

    async def queued_resource(self, name: ResourceName) -> QueuedView:
        """One queued resource.

        :raises ResourceNotFound: the API does not know it.
        """
        return to_queued_view(await self.calls.call(self.calls.client.get_queued_resource, name, name=str(name)))

    async def create(self, spec: TPUSpec, stamp: Stamp, permit: Permit) -> str:
        """Ask for a TPU; only the holder of a permit can.

        :param spec: what to create.
        :param stamp: its name and marks.
        :param permit: proof that the grant covers it now, or the reason why it may be paid.
        :return: name of the operation.
        """
        # Its answer may be lost on the way; any other error is a refusal.
        with stated(NOTHING_CREATED), stated(MAY_BE_CREATED, TransientError):
            try:
                return await self._create(spec, stamp, permit)
            except TransientError as error:
                error.refused = is_answer(error.__cause__)
                raise

    async def _create(self, spec: TPUSpec, stamp: Stamp, permit: Permit) -> str:
        permit.check(spec)
        client = self.calls.client
        if spec.queued:
            request = to_create_queued(spec, stamp)
            # The request id makes a repetition harmless; a node create has none and is never repeated blindly.
            call = await self.calls.call(client.create_queued_resource, stamp.node_id, request=request)
        else:
            node = to_create_node(spec, stamp)
            call = await self.calls.call(client.create_node, stamp.node_id, repeat=False, request=node)
        return str(call.operation.name)

    async def delete_node(self, name: ResourceName) -> OperationView | None:
        """Start deleting a node; None when it was gone already."""

        async def is_going() -> bool:
            return await _is_going(self.node(name))

        return await self.calls.delete(self.calls.client.delete_node, name, is_going, name=str(name))

    async def delete_queued_resource(self, name: ResourceName) -> OperationView | None:
        """Start deleting a queued resource and its nodes; None when it was gone already."""
        from google.cloud import tpu_v2

        async def is_going() -> bool:
            return await _is_going(self.queued_resource(name))

        # One id for all repetitions of this delete. A later one has its own: this one's operation may fail.
        request = tpu_v2.DeleteQueuedResourceRequest(name=str(name), force=True, request_id=str(uuid.uuid4()))
        return await self.calls.delete(self.calls.client.delete_queued_resource, name, is_going, request=request)

    async def relabel(self, name: ResourceName, labels: dict[str, str]) -> None:
        """Replace the labels of a node (the adopting attempt writes its own token)."""
        from google.cloud import tpu_v2

        request = tpu_v2.UpdateNodeRequest(
            node=tpu_v2.Node(name=str(name), labels=labels), update_mask={"paths": ["labels"]}
        )
        await self.calls.call(self.calls.client.update_node, name, request=request)

    async def operation(self, name: str) -> OperationView:
        """State of an operation, by name: another process, or a later one, can ask just as well."""
        from google.longrunning import operations_pb2

        request = operations_pb2.GetOperationRequest(name=name)
        return to_operation_view(await self.calls.call(self.calls.client.get_operation, name, request=request))

    async def operations(self, zone: str) -> Listing[OperationView]:
        """Every operation of a zone that the API still knows, those of other users included."""
        from google.longrunning import operations_pb2

        found: list[OperationView] = []
        token = ""
        while True:
            request = operations_pb2.ListOperationsRequest(
                name=self.calls.parent(zone), page_size=1000, page_token=token
            )
            page = await self.calls.call(self.calls.client.list_operations, "list", request=request)
            found.extend(map(to_operation_view, page.operations))
            token = page.next_page_token
            if not token:
                return Listing(tuple(found))

    async def host_keys(self, name: ResourceName) -> dict[int, str]:
        """SSH host key of each worker, as its guest attributes publish it.

        :return: worker id to ``ssh-ed25519 BASE64``; a worker that publishes none is missing, and all are missing where
            the organisation forbids guest attributes.
        """
        from google.cloud import tpu_v2

        request = tpu_v2.GetGuestAttributesRequest(name=str(name), query_path="hostkeys/")
        try:
            answer = await self.calls.call(self.calls.client.get_guest_attributes, name, request=request)
        except (ResourceNotFound, HostKeysHidden):
            return {}
        return to_host_keys(answer)


async def _is_going(answer: Awaitable[TPUView | QueuedView]) -> bool:
    """Whether a resource is gone or DELETING; one that cannot be read may live."""
    try:
        return (await answer).phase is Phase.DELETING
    except ResourceNotFound:
        return True
    except TPUError:
        return False


async def offered(client: TPUClient, zone: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a zone offers now: accelerator types and runtime versions.

    :param client: the Cloud TPU API.
    :param zone: such as ``us-central1-f``.
    """
    calls = client.calls
    parent = {"parent": calls.parent(zone)}
    types = await calls.listing(calls.client.list_accelerator_types, parent, lambda item: str(item.type_))
    versions = await calls.listing(calls.client.list_runtime_versions, parent, lambda item: str(item.version))
    return frozenset(types.items), frozenset(versions.items)
