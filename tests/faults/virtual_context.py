# SPDX-License-Identifier: Apache-2.0
"""The clients and the clock of one virtual process, for the verbs of the product."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TypeVar, cast

import asyncssh
from google.auth.credentials import AnonymousCredentials

from airflow_tpu.clients.endpoints import ConnectionOptions
from airflow_tpu.clients.ssh import Login, WorkerAddress
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.errors import TPUError
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.lifecycle.run_context import GrantContext, RunContext
from airflow_tpu.lifecycle.waits.polling import Waiting
from airflow_tpu.lifecycle.waits.reachability import Access
from tests.faults.virtual_processes import Killed, Process
from tests.faults.virtual_wire import VirtualChannel, VirtualClient, VirtualStorage

T = TypeVar("T")
BUCKET = "trc-local"
ZONE = "us-central1-f"
POLL = 15.0
TO_THE_END = Waiting(POLL)
"""A task that waits in its worker: nobody has a triggerer here."""

TERM_HOURS = 6.0
EXPECTED = (TPUError, Killed)
"""What a process may end with: an error of the product's tree, never a bare one."""

LOGIN = Login("trainer", asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())


class VirtualAccess(Access):
    """Workers that answer at once: machines are no part of this cloud."""

    async def check(self, address: WorkerAddress) -> WorkerAddress:
        """Nothing to log in to."""
        return address


class VirtualTPU:
    """Calls of one process, on its own clock."""

    endpoint = APIEndpoint("local-project", AnonymousCredentials(), "virtual", True)

    def __init__(self, process: Process, channel: VirtualChannel) -> None:
        self._process, self._channel = process, channel

    def missing_permissions(self, permissions: Sequence[str]) -> tuple[str, ...] | None:
        """None are missing: the virtual cloud has no accounts."""
        return ()

    def run(self, verb: Callable[[TPUClient], Awaitable[T]]) -> T:
        """Run a coroutine with a client of its own."""

        async def call() -> T:
            async with VirtualClient(self._channel, self._process) as client:
                return await verb(client)

        return self._process.run(call())


class VirtualContext:
    """What one process of the product works with; the clients of its runs.

    :param process: the process.
    :param channel: its connection to the TPU API.
    :param storage: its connection to Cloud Storage.
    :param grant: what may be used.
    """

    def __init__(self, process: Process, channel: VirtualChannel, storage: VirtualStorage, grant: Grant) -> None:
        self.process = process
        self.tpu = VirtualTPU(process, channel)
        self.storage = cast(ArtifactsHook, storage)
        self._grant = grant

    @cached_property
    def access(self) -> Access:
        """How to log in."""
        return VirtualAccess(LOGIN, ConnectionOptions())

    @property
    def grant(self) -> GrantContext:
        """What the reaper works on."""
        return GrantContext(self, self._grant, self.process.clock)

    def run(self, key: RunKey, queued: bool = False) -> RunContext:
        """A run that asks for one spot v2-8."""
        conf = {
            "script": "hello.py",
            "accelerator_type": "v2-8",
            "zone": ZONE,
            "tier": "spot",
            "artifacts_uri": f"gs://{BUCKET}/runs",
            "provisioning": "queued-resource" if queued else "node",
            "deadline_hours": TERM_HOURS,
        }
        return RunContext(key, conf, self, self._grant, self.process.clock)
