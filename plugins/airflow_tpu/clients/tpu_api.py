"""The verbs of the Cloud TPU API, asynchronous, each with a timeout and with our errors.

Operations are polled by name with :meth:`TPUClient.operation`: the clients' own ``result()`` gives up after 900 s,
and the asynchronous one loses the error code and does not survive a single UNAVAILABLE
(https://github.com/googleapis/python-api-core/issues/722).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_tpu.clients.clock import WALL, Clock
from airflow_tpu.clients.tpu_messages import (
    OperationView,
    Stamp,
    to_create_node,
    to_create_queued,
    to_operation_view,
    to_queued_view,
    to_view,
)
from airflow_tpu.clients.tpu_retry import CallTiming, retries, translated
from airflow_tpu.consequences import MAY_BE_CREATED, NOTHING_CREATED, stated
from airflow_tpu.core.tpu.resource_name import location, zone_of
from airflow_tpu.errors import ResourceNotFound, TransientError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from google.cloud import tpu_v2

    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import QueuedView, TPUSpec, TPUView

T = TypeVar("T")


@dataclass(frozen=True)
class APIEndpoint:
    """Address and credentials of the API.

    :param project_id: the project.
    :param credentials: Google credentials, anonymous ones for a local endpoint.
    :param address: ``host:port`` that replaces Google's own; empty means Google.
    :param insecure: plaintext instead of TLS.
    """

    project_id: str
    credentials: Credentials = field(repr=False)
    address: str = ""
    insecure: bool = False


@dataclass(frozen=True)
class Listing(Generic[T]):
    """Items of a list call, and the zones that did not answer: an empty list is not proof of nothing."""

    items: tuple[T, ...]
    unreachable: tuple[str, ...] = ()


def connect(endpoint: APIEndpoint) -> tpu_v2.TpuAsyncClient:
    """Build Google's own client; a local endpoint differs in its channel only."""
    import grpc
    from google.api_core.client_options import ClientOptions
    from google.cloud.tpu_v2 import TpuAsyncClient
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport

    if not endpoint.address:
        return TpuAsyncClient(credentials=endpoint.credentials)

    def transport(**kwargs: Any) -> TpuGrpcAsyncIOTransport:
        if endpoint.insecure:
            # The callable is handed credentials and TLS options, and uses neither.
            kwargs["channel"] = lambda *_args, **_kwargs: grpc.aio.insecure_channel(endpoint.address)
        return TpuGrpcAsyncIOTransport(**kwargs)

    return TpuAsyncClient(
        credentials=endpoint.credentials,
        transport=transport,
        client_options=ClientOptions(api_endpoint=endpoint.address),
    )


class TPUClient:
    """Asynchronous context manager around one connection to the Cloud TPU API.

    :param endpoint: address and credentials of the API.
    :param timing: bounds of each call.
    :param clock: for every wait on the API.
    """

    def __init__(self, endpoint: APIEndpoint, timing: CallTiming | None = None, clock: Clock = WALL) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self.timing = timing or CallTiming()
        self._client: tpu_v2.TpuAsyncClient | None = None

    async def __aenter__(self) -> TPUClient:
        self._client = connect(self.endpoint)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._client is not None:
            await self._client.transport.close()

    @property
    def client(self) -> tpu_v2.TpuAsyncClient:
        """Google's client; only inside the context."""
        if self._client is None:
            raise RuntimeError("TPUClient is used outside of 'async with'")
        return self._client

    def location(self, zone: str = "-") -> str:
        """``projects/P/locations/ZONE``; ``-`` stands for every zone."""
        return location(self.endpoint.project_id, zone)

    async def nodes(self, zone: str = "-") -> Listing[TPUView]:
        """Every node of the project, those of other users included."""
        from google.cloud import tpu_v2

        request = tpu_v2.ListNodesRequest(parent=self.location(zone), page_size=1000)
        return await self._list(self.client.list_nodes, request, to_view)

    async def queued_resources(self, zone: str = "-") -> Listing[QueuedView]:
        """Every queued resource of the project, dead ones included: they hold quota until deleted."""
        from google.cloud import tpu_v2

        request = tpu_v2.ListQueuedResourcesRequest(parent=self.location(zone), page_size=1000)
        return await self._list(self.client.list_queued_resources, request, to_queued_view)

    async def node(self, name: ResourceName) -> TPUView:
        """One node.

        :raises ResourceNotFound: the API does not know it.
        """
        return to_view(await self._call(self.client.get_node, name, name=str(name)))

    async def queued_resource(self, name: ResourceName) -> QueuedView:
        """One queued resource.

        :raises ResourceNotFound: the API does not know it.
        """
        return to_queued_view(await self._call(self.client.get_queued_resource, name, name=str(name)))

    async def create(self, spec: TPUSpec, stamp: Stamp, permit: Permit) -> str:
        """Ask for a TPU; only the holder of a permit can.

        :param spec: what to create.
        :param stamp: its name and marks.
        :param permit: proof that the grant covers it now, or the reason why it may be paid.
        :return: name of the operation.
        """
        # Its answer may be lost on the way; any other error is a refusal.
        with stated(NOTHING_CREATED), stated(MAY_BE_CREATED, TransientError):
            return await self._create(spec, stamp, permit)

    async def _create(self, spec: TPUSpec, stamp: Stamp, permit: Permit) -> str:
        permit.check(spec)
        if spec.queued:
            request = to_create_queued(spec, stamp)
            # The request id makes a repetition harmless; a node create has none and is never repeated blindly.
            call = await self._call(self.client.create_queued_resource, stamp.node_id, request=request)
        else:
            node_request = to_create_node(spec, stamp)
            call = await self._call(self.client.create_node, stamp.node_id, repeat=False, request=node_request)
        return str(call.operation.name)

    async def delete_node(self, name: ResourceName) -> OperationView | None:
        """Start deleting a node; None when it is gone already."""
        return await self._delete(self.client.delete_node, name, name=str(name))

    async def delete_queued_resource(self, name: ResourceName) -> OperationView | None:
        """Start deleting a queued resource and its nodes; None when it is gone already."""
        from google.cloud import tpu_v2

        request = tpu_v2.DeleteQueuedResourceRequest(name=str(name), force=True)
        return await self._delete(self.client.delete_queued_resource, name, request=request)

    async def relabel(self, name: ResourceName, labels: dict[str, str]) -> None:
        """Replace the labels of a node (the adopting attempt writes its own token)."""
        from google.cloud import tpu_v2

        request = tpu_v2.UpdateNodeRequest(
            node=tpu_v2.Node(name=str(name), labels=labels), update_mask={"paths": ["labels"]}
        )
        await self._call(self.client.update_node, name, request=request)

    async def operation(self, name: str) -> OperationView:
        """State of an operation, by name: another process, or a later one, can ask just as well."""
        from google.longrunning import operations_pb2

        request = operations_pb2.GetOperationRequest(name=name)
        return to_operation_view(await self._call(self.client.get_operation, name, request=request))

    async def host_keys(self, name: ResourceName) -> dict[int, str]:
        """SSH host key of each worker, as its guest attributes publish it.

        :return: worker id to ``ssh-ed25519 BASE64``; a worker that publishes none is missing.
        """
        from google.cloud import tpu_v2

        request = tpu_v2.GetGuestAttributesRequest(name=str(name), query_path="hostkeys/")
        try:
            answer = await self._call(self.client.get_guest_attributes, name, request=request)
        except ResourceNotFound:
            return {}
        keys = {}
        for worker, attributes in enumerate(answer.guest_attributes):
            for item in attributes.query_value.items:
                if item.key == "ssh-ed25519":
                    keys[worker] = f"ssh-ed25519 {item.value.removeprefix('ssh-ed25519').strip()}"
        return keys

    async def offered(self, zone: str) -> tuple[frozenset[str], frozenset[str]]:
        """What a zone offers now: accelerator types and runtime versions."""
        types = await self._list(
            self.client.list_accelerator_types, {"parent": self.location(zone)}, lambda item: str(item.type_)
        )
        versions = await self._list(
            self.client.list_runtime_versions, {"parent": self.location(zone)}, lambda item: str(item.version)
        )
        return frozenset(types.items), frozenset(versions.items)

    async def _delete(self, method: Callable[..., Any], resource: object, **kwargs: Any) -> OperationView | None:
        try:
            call = await self._call(method, resource, **kwargs)
        except ResourceNotFound:
            return None
        return to_operation_view(call.operation)

    async def _list(self, method: Callable[..., Any], request: Any, convert: Callable[[Any], T]) -> Listing[T]:
        pager = await self._call(method, "list", request=request)
        items: list[T] = []
        unreachable: set[str] = set()
        with translated("list"):
            async for page in pager.pages:
                unreachable.update(map(zone_of, getattr(page, "unreachable", ())))
                items.extend(convert(item) for item in _items(page))
        return Listing(tuple(items), tuple(sorted(unreachable)))

    async def _call(self, method: Callable[..., Any], resource: object, repeat: bool = True, **kwargs: Any) -> Any:
        retry = retries(self.timing) if repeat else None
        with translated(str(resource)):
            return await method(**kwargs, timeout=self.timing.answer, retry=retry)


def _items(page: Any) -> Any:
    for name in ("nodes", "queued_resources", "accelerator_types", "runtime_versions"):
        if hasattr(page, name):
            return getattr(page, name)
    raise TypeError(f"unknown page {type(page).__name__}")
