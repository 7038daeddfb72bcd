# SPDX-License-Identifier: Apache-2.0
"""One call of the Cloud TPU API: where it goes, how long it may take, and which error of ours it ends with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from airflow_tpu.clients.tpu_messages import OperationView, to_operation_view
from airflow_tpu.clients.tpu_retry import CallTiming, refused_tokens, retries, translated
from airflow_tpu.core.tpu.resource_name import location, zone_of
from airflow_tpu.errors import RateLimited, ResourceNotFound, TPUError, TransientError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from google.cloud import tpu_v2

T = TypeVar("T")
log = logging.getLogger(__name__)


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

    @property
    def account(self) -> tuple[str, ...]:
        """Where and as whom is asked: each hook has credentials of its own, two of one connection ask as the same."""
        credentials = self.credentials
        email = str(getattr(credentials, "service_account_email", "") or "")
        key = str(getattr(getattr(credentials, "signer", None), "key_id", "") or "")
        refresh = str(hash(getattr(credentials, "refresh_token", None)))
        kind = type(credentials).__qualname__
        return self.project_id, self.address, str(self.insecure), kind, email, key, refresh


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


@dataclass
class _Shared:
    """Google's client, and how many use it."""

    client: tpu_v2.TpuAsyncClient
    users: int = 0


# A channel belongs to the event loop in which it was opened; it goes with it.
_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, ...], _Shared]] = WeakKeyDictionary()


class TPUCalls:
    """Knows endpoint, bounds and errors of a call, and nothing of what is called.

    All of an event loop that ask as the same account share one client of Google's, with its channel and its access
    token: a client has 60 kB, and a triggerer follows hundreds of runs.

    :param endpoint: address and credentials of the API.
    :param timing: bounds of each call.
    """

    def __init__(self, endpoint: APIEndpoint, timing: CallTiming) -> None:
        self.endpoint = endpoint
        self.timing = timing
        self._shared: _Shared | None = None

    def open(self, own: tpu_v2.TpuAsyncClient | None = None) -> None:
        """Make calls through Google's client from now on; close it in the same event loop.

        :param own: a client that nobody else uses; None: the one that the account has in this loop.
        """
        clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
        key = self.endpoint.account
        if own is None and key not in clients:
            clients[key] = _Shared(connect(self.endpoint))
        self._shared = clients[key] if own is None else _Shared(own)
        self._shared.users += 1

    async def close(self) -> None:
        """Close the channel, if nobody else uses it; harmless if it was never opened."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        shared.users -= 1
        clients = _CLIENTS.get(asyncio.get_running_loop(), {})
        if shared.users == 0:
            if clients.get(self.endpoint.account) is shared:
                del clients[self.endpoint.account]
            await shared.client.transport.close()

    @property
    def client(self) -> tpu_v2.TpuAsyncClient:
        """Google's client; only while it is open."""
        if self._shared is None:
            raise RuntimeError("TPUClient is used outside of 'async with'")
        return self._shared.client

    def parent(self, zone: str = "-") -> str:
        """``projects/P/locations/ZONE``; ``-`` stands for every zone."""
        return location(self.endpoint.project_id, zone)

    async def call(self, method: Callable[..., Any], resource: object, repeat: bool = True, **kwargs: Any) -> Any:
        """Call a method.

        :param method: of Google's client.
        :param resource: what the call is about, for the message of an error.
        :param repeat: whether a call whose answer was lost may be made once more.
        :param kwargs: the request, or its fields.
        :raises TPUError: the leaf of our tree that the error is.
        """
        retry = retries(self.timing) if repeat else refused_tokens(self.timing)
        with translated(str(resource)):
            return await method(**kwargs, timeout=self.timing.answer, retry=retry)

    async def delete(
        self, method: Callable[..., Any], resource: object, is_going: Callable[[], Awaitable[bool]], **kwargs: Any
    ) -> OperationView | None:
        """Call a method that deletes; where its answer is lost, the resource itself tells whether it was asked for.

        :param method: of Google's client.
        :param resource: what is deleted.
        :param is_going: reads the resource: whether it is gone or being deleted.
        :return: None when the API did not know the resource before this call.
        :raises TransientError: no answer, and the resource lives on, or cannot be read.
        """
        try:
            return to_operation_view((await self.call(method, resource, repeat=False, **kwargs)).operation)
        except ResourceNotFound:
            return None
        except (TransientError, RateLimited) as error:
            if await is_going():
                return _without_answer(resource, error)
        try:
            return to_operation_view((await self.call(method, resource, **kwargs)).operation)
        except ResourceNotFound as error:  # it was there for the first call
            return _without_answer(resource, error)
        except (TransientError, RateLimited) as error:
            if not await is_going():
                raise
            return _without_answer(resource, error)

    async def listing(self, method: Callable[..., Any], request: Any, convert: Callable[[Any], T]) -> Listing[T]:
        """Call a method that lists, all pages.

        :param convert: from an item of the answer to one of the listing.
        """
        pager = await self.call(method, "list", request=request)
        items: list[T] = []
        unreachable: set[str] = set()
        with translated("list"):
            async for page in pager.pages:
                unreachable.update(map(zone_of, getattr(page, "unreachable", ())))
                items.extend(convert(item) for item in _items(page))
        return Listing(tuple(items), tuple(sorted(unreachable)))


def _without_answer(resource: object, error: TPUError) -> OperationView:
    """What is known of a delete that was carried out although its answer is missing: neither its name nor its time."""
    log.info("%s is being deleted although the answer to the delete is missing (%s)", resource, error)
    return OperationView(name="", done=False)


def _items(page: Any) -> Any:
    for name in ("nodes", "queued_resources", "accelerator_types", "runtime_versions"):
        if hasattr(page, name):
            return getattr(page, name)
    raise TypeError(f"unknown page {type(page).__name__}")
