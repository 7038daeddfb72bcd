# SPDX-License-Identifier: Apache-2.0
"""Hooks for the Cloud TPU API: a connection becomes an endpoint, and the endpoint a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from airflow.providers.google.common.hooks.base_google import GoogleBaseAsyncHook
from google.auth.exceptions import GoogleAuthError
from requests.exceptions import RequestException

from airflow_tpu import settings
from airflow_tpu.clients.endpoints import ConnectionOptions, parse_options
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint, Listing
from airflow_tpu.clients.tpu_messages import OperationView
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.hooks.google_connection import GoogleConnection

if TYPE_CHECKING:
    from airflow_tpu.core.tpu.spec import QueuedView, TPUView

T = TypeVar("T")

RESOURCE_MANAGER = "https://cloudresourcemanager.googleapis.com"
_ANSWER = 10.0  # seconds
NO_PROJECT = "is missing from the connection and from the credentials; enter the project that the grant was given to"


class CloudTPUHook(GoogleConnection):
    """Talk to the Cloud TPU API (``google.cloud.tpu.v2``) from a worker.

    Every verb opens its own short connection; a task that needs several at once uses :meth:`client` in a coroutine.

    :param gcp_conn_id: connection of type ``google_cloud_tpu`` or ``google_cloud_platform``; its extra may name a local
        endpoint.
    :param impersonation_chain: service account to impersonate.
    """

    conn_type = "google_cloud_tpu"
    hook_name = "Google Cloud TPU"

    @cached_property
    def options(self) -> ConnectionOptions:
        """Our keys of the connection, checked.

        :raises ConfigError: a value is wrong, or an unprotected endpoint is not near.
        """
        return parse_options(self._get_field, settings.insecure_hosts())

    @cached_property
    def endpoint(self) -> APIEndpoint:
        """Address and credentials of the API.

        :raises ConfigError: no project can be found.
        :raises AccessDenied: there are no credentials, or Google refuses them.
        """
        options = self.options
        if options.anonymous and self.impersonation_chain:
            fault = Fault("impersonation_chain", self.impersonation_chain, "cannot be used with is_anonymous")
            raise ConfigError([fault], "the google_cloud_platform connection")
        credentials, project_id = self.get_credentials_and_project_id()
        if not project_id:
            raise ConfigError([Fault("project", "", NO_PROJECT)], f"the connection {self.gcp_conn_id}")
        return APIEndpoint(project_id, credentials, options.tpu_api_endpoint, options.tpu_insecure)

    def client(self) -> TPUClient:
        """Asynchronous client, to be entered in a coroutine."""
        return TPUClient(self.endpoint)

    def get_node(self, name: str) -> TPUView:
        """One node by its full name.

        :raises ResourceNotFound: the API does not know it.
        """
        return self.run(lambda client: client.node(ResourceName.parse(name)))

    def list_nodes(self, zone: str = "-") -> Listing[TPUView]:
        """Every node of the project in a zone, or in all of them."""
        return self.run(lambda client: client.nodes(zone))

    def list_queued_resources(self, zone: str = "-") -> Listing[QueuedView]:
        """Every queued resource of the project in a zone, or in all of them."""
        return self.run(lambda client: client.queued_resources(zone))

    def delete_node(self, name: str) -> OperationView | None:
        """Start deleting a node; None when it is gone already."""
        return self.run(lambda client: client.delete_node(ResourceName.parse(name)))

    def delete_queued_resource(self, name: str) -> OperationView | None:
        """Start deleting a queued resource with its nodes; None when it is gone already."""
        return self.run(lambda client: client.delete_queued_resource(ResourceName.parse(name)))

    def get_operation(self, name: str) -> OperationView:
        """State of a long-running operation."""
        return self.run(lambda client: client.operation(name))

    def missing_permissions(self, permissions: Sequence[str]) -> tuple[str, ...] | None:
        """Those that the account of the connection lacks on its project; None where that cannot be asked.

        Asking needs no right, only the Cloud Resource Manager API in the project.

        https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions
        """
        from google.auth.transport.requests import AuthorizedSession

        server = self.options.resource_manager_endpoint or ("" if self.options.anonymous else RESOURCE_MANAGER)
        if not server:
            return None
        url = f"{server}/v1/projects/{self.endpoint.project_id}:testIamPermissions"
        try:
            session = AuthorizedSession(self.endpoint.credentials)
            answer = session.post(url, json={"permissions": list(permissions)}, timeout=_ANSWER)
        except (RequestException, GoogleAuthError):
            return None
        if answer.status_code != HTTPStatus.OK:
            return None
        held = answer.json().get("permissions", [])
        return tuple(each for each in permissions if each not in held)

    def run(self, verb: Callable[[TPUClient], Awaitable[T]]) -> T:
        """Run a coroutine with a client of its own, from code that is not asynchronous.

        :param verb: what to do with the client.
        """
        endpoint = self.endpoint  # the connection is read here, outside of the event loop

        async def call() -> T:
            async with TPUClient(endpoint) as client:
                return await verb(client)

        return asyncio.run(call())


class CloudTPUAsyncHook(GoogleBaseAsyncHook):
    """Talk to the Cloud TPU API from the triggerer's event loop.

    :param gcp_conn_id: connection of type ``google_cloud_platform``.
    :param impersonation_chain: service account to impersonate.
    """

    sync_hook_class = CloudTPUHook

    async def client(self) -> TPUClient:
        """Asynchronous client, to be entered with ``async with``."""
        sync_hook = await self.get_sync_hook()
        return TPUClient(await asyncio.to_thread(lambda: sync_hook.endpoint))

    async def options(self) -> ConnectionOptions:
        """Our keys of the connection, checked."""
        sync_hook = await self.get_sync_hook()
        return await asyncio.to_thread(lambda: sync_hook.options)
