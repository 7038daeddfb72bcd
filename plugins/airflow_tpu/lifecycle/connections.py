# SPDX-License-Identifier: Apache-2.0
"""The clients that a run talks to, made of the Airflow connections of its task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from airflow_tpu.clients import airflow_state
from airflow_tpu.clients.ssh_login import read_login
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.hooks.tpu import CloudTPUHook
from airflow_tpu.lifecycle.waits.reachability import Access

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_calls import APIEndpoint
    from airflow_tpu.core.run.trigger_context import TriggerContext

T = TypeVar("T")


class CloudTPU(Protocol):
    """Calls the Cloud TPU API from code that is not asynchronous: :class:`airflow_tpu.hooks.tpu.CloudTPUHook`."""

    @property
    def endpoint(self) -> APIEndpoint:
        """Address and credentials of the API."""

    def missing_permissions(self, permissions: Sequence[str]) -> tuple[str, ...] | None:
        """Those that the account lacks on the project, None where that cannot be asked."""

    def run(self, verb: Callable[[TPUClient], Awaitable[T]]) -> T:
        """Run a coroutine with a client of its own."""


class Clients(Protocol):
    """What a run talks to, one wire each."""

    @property
    def tpu(self) -> CloudTPU:
        """Cloud TPU API."""

    @property
    def storage(self) -> ArtifactsHook:
        """Cloud Storage."""

    @property
    def access(self) -> Access:
        """Login and port of the TPU VMs."""


@dataclass(frozen=True)
class Connections:
    """Which connections a task uses; each is read when it is first needed.

    :param gcp_conn_id: Cloud TPU API and Cloud Storage.
    :param ssh_conn_id: user and private key.
    :param impersonation_chain: service account to impersonate, empty for none.
    """

    gcp_conn_id: str = "google_cloud_default"
    ssh_conn_id: str = "tpu_ssh_default"
    impersonation_chain: str = ""

    @classmethod
    def of(cls, watch: TriggerContext) -> Connections:
        """Those of the task that has started a trigger."""
        return cls(watch.gcp_conn_id, watch.ssh_conn_id, watch.impersonation_chain)

    @cached_property
    def tpu(self) -> CloudTPUHook:
        """Cloud TPU API."""
        return CloudTPUHook(self.gcp_conn_id, self.impersonation_chain or None)

    @cached_property
    def storage(self) -> ArtifactsHook:
        """Cloud Storage."""
        return ArtifactsHook(self.gcp_conn_id, self.impersonation_chain or None)

    @cached_property
    def access(self) -> Access:
        """Login and port of the TPU VMs."""
        return Access(read_login(airflow_state.connection(self.ssh_conn_id)), self.tpu.options)
