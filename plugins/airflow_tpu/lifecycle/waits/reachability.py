# SPDX-License-Identifier: Apache-2.0
"""From READY to reachable: a real command has run on every worker.

READY only promises that login will work soon; sshd may refuse and the key may be on its way for a minute. Between two
tries the node is read again, since a node that is preempted while it boots looks just like one that is slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress
from airflow_tpu.errors import AccessDenied, ConnectionFailed, HostLost, LoginRefused, NotOffered, RemoteError
from airflow_tpu.lifecycle.waits.loss import lost_state
from airflow_tpu.lifecycle.waits.polling import PollLoop, PollPolicy, UnhealthySince
from airflow_tpu.lifecycle.waits.ready import Arrival, until_ready

if TYPE_CHECKING:
    from airflow_tpu.clients.endpoints import ConnectionOptions
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import TPUView
    from airflow_tpu.lifecycle.waits.target import Target

log = logging.getLogger(__name__)

BOOT_WINDOW = dt.timedelta(minutes=5)
"""How long after READY a refused connection or key is normal (gcloud's own helper retries in the same way)."""

_PAUSE = 2.0
"""Longest pause between two tries in that window."""

ONE_TRY = Timing(boot_window=0.0)
"""A session that fails at once: the caller reads the node's state before it tries again."""

REACHED = dt.timedelta(seconds=15)
"""How long a worker that has answered before is tried again while the API calls its node alive."""


@dataclass(frozen=True)
class Access:
    """How to log in to the workers of a TPU.

    :param login: user and private key.
    :param options: port of the connection's extra.
    """

    login: Login
    options: ConnectionOptions

    async def check(self, address: WorkerAddress) -> WorkerAddress:
        """Run a command on a worker.

        :return: the address with the host key that it has shown.
        :raises ConnectionFailed: nothing answers there.
        :raises LoginRefused: it answers and refuses the key.
        """
        async with RunSession(address, self.login, ONE_TRY) as session:
            await session.check()
            return session.address


@contextlib.asynccontextmanager
async def session_with(
    client: TPUClient, login: Login, node: ResourceName, address: WorkerAddress
) -> AsyncIterator[RunSession]:
    """Log in to a worker that has answered before; the API is asked about its node at every connection that fails.

    :param client: the Cloud TPU API.
    :param login: user and private key.
    :param node: whose worker it is.
    :param address: of the worker.
    :raises TPULost: a connection was refused or lost, and the node is gone or going.
    :raises ConnectionFailed: the node lives, and nothing answers there within :data:`REACHED`; or the connection was
        lost later.
    :raises LoginRefused: the same, with a key that is refused.
    """
    gives_up = client.clock.now() + REACHED
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                session = await stack.enter_async_context(RunSession(address, login, ONE_TRY))
                break
            except (ConnectionFailed, LoginRefused) as error:
                await _raise_lost(client, node, error)
                if client.clock.now() >= gives_up:
                    raise
                log.info("%s; %s is alive, trying again until %s", error, node, gives_up)
            await asyncio.sleep(_PAUSE)
        try:
            yield session
        except ConnectionFailed as error:
            await _raise_lost(client, node, error)
            raise


async def _raise_lost(client: TPUClient, node: ResourceName, error: RemoteError) -> None:
    lost = await lost_state(client, node)
    if lost is not None:
        raise lost from error


async def arrive(
    client: TPUClient, target: Target, access: Access, policy: PollPolicy, unhealthy: UnhealthySince | None = None
) -> tuple[Arrival, list[WorkerAddress]]:
    """Wait until the TPU is READY and every worker has run a command.

    :param unhealthy: what an earlier wait has seen of the node; what this one sees is entered.
    :return: the arrival with the host keys to pin, and the address of each worker.
    :raises CloudError: it failed to come up, or was lost meanwhile.
    :raises HostLost: it is READY, and nothing answers there within the boot window.
    :raises RemoteError: it answers and refuses the login.
    """
    arrival = await until_ready(client, target, policy, unhealthy)
    addresses = await worker_addresses(client, arrival.view, access.options.ssh_port, target.host_keys)
    window_ends = min(policy.until, client.clock.now() + BOOT_WINDOW)
    boot = PollPolicy(min(_PAUSE, policy.poll), window_ends)
    reached = await asyncio.gather(*(_until_reached(client, target, address, access, boot) for address in addresses))
    return replace(arrival, host_keys=tuple(address.host_key or "" for address in reached)), reached


async def worker_addresses(
    client: TPUClient, view: TPUView, port: int, pinned: Sequence[str] = ()
) -> list[WorkerAddress]:
    """Address and host key of every worker.

    The key is the one that the API publishes, else the one that an earlier login has seen. Without either the first
    one is trusted, and the log says so.

    :param client: the Cloud TPU API.
    :param view: the node as it is now.
    :param port: of the TPU VMs' SSH server.
    :param pinned: host key of each worker by an earlier login to this incarnation.
    """
    published = await _published(client, view)
    found = []
    for worker, endpoint in enumerate(view.endpoints):
        key = published.get(worker) or "".join(pinned[worker : worker + 1]) or None
        if key is None:
            log.warning(
                "worker %d of %s publishes no host key: the first key seen is trusted until this TPU is deleted",
                worker,
                view.node_id,
            )
        found.append(WorkerAddress(endpoint.external or endpoint.internal, port, key))
    return found


async def _published(client: TPUClient, view: TPUView) -> dict[int, str]:
    """Host keys in the guest attributes; a role or a policy that hides those does not end the run."""
    try:
        return await client.host_keys(view.name)
    except (AccessDenied, NotOffered) as error:
        log.warning("the host keys of %s cannot be read, continuing without: %s", view.node_id, error)
        return {}


async def _until_reached(
    client: TPUClient, target: Target, address: WorkerAddress, access: Access, boot: PollPolicy
) -> WorkerAddress:
    loop = PollLoop(boot, client.clock)
    while True:
        try:
            return await access.check(address)
        except (ConnectionFailed, LoginRefused) as error:
            lost = await lost_state(client, target.node)
            if lost is not None:
                raise lost from error
            if client.clock.now() >= boot.until:
                if isinstance(error, LoginRefused):  # it answers: another machine would refuse as well
                    raise
                raise HostLost(f"{target.node_id} is READY and cannot be reached: {error}. It is replaced.") from error
            loop.say(f"the first command on worker {address.host}, which is not reachable yet ({error})")
        await asyncio.sleep(boot.poll)
