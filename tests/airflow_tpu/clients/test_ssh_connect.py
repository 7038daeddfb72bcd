# SPDX-License-Identifier: Apache-2.0
"""Connecting to a real SSH server: host keys, late login keys, and refusals that are told apart."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncssh
import pytest

from airflow_tpu.clients.runner.session import RunSession
from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress
from airflow_tpu.errors import ConfigError, ConnectionFailed, HostKeyMismatch, LoginRefused
from localcloud.vm.worker.interface import SSHKey, Worker


async def test_another_host_key_is_refused_at_once(address: WorkerAddress, login: Login, timing: Timing) -> None:
    """A worker that shows another key than the pinned one is not talked to, inside the boot window or not."""
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    with pytest.raises(HostKeyMismatch, match="another host key"):
        async with RunSession(replace(address, host_key=other), login, timing):
            pass


async def test_the_first_key_is_pinned_for_what_follows(
    worker: Worker, address: WorkerAddress, login: Login, timing: Timing
) -> None:
    """Without a known key the first one is trusted, reported, and the only one accepted afterwards."""
    async with RunSession(replace(address, host_key=None), login, timing) as session:
        pinned = session.address
    assert pinned.host_key == address.host_key
    await worker.rotate_host_key()
    with pytest.raises(HostKeyMismatch):
        async with RunSession(pinned, login, timing):
            pass


async def test_a_late_key_is_waited_for(
    worker: Worker, address: WorkerAddress, login: Login, timing: Timing, ssh_key: SSHKey
) -> None:
    """A key that arrives after sshd lets the login in, as long as the boot window is open."""
    await worker.set_keys(())
    late = asyncio.get_running_loop().call_later(1.0, lambda: arrived.append(asyncio.ensure_future(arrive())))
    arrived: list[asyncio.Future[None]] = []

    async def arrive() -> None:
        await worker.set_keys((ssh_key,))

    async with RunSession(address, login, timing) as session:
        await session.check()
    assert late.when() <= asyncio.get_running_loop().time()
    await asyncio.gather(*arrived)


async def test_refusals_are_told_apart(worker: Worker, address: WorkerAddress, login: Login, timing: Timing) -> None:
    """After the boot window a missing key, a closed port and a silent machine have different errors and texts."""
    impatient = replace(timing, boot_window=0.0)
    await worker.set_keys(())
    with pytest.raises(LoginRefused, match="OS Login"):
        await RunSession(address, login, impatient).__aenter__()
    await worker.refuse()
    with pytest.raises(ConnectionFailed, match="sshd is not running"):
        await RunSession(address, login, impatient).__aenter__()
    await worker.accept()
    await worker.freeze()
    with pytest.raises(ConnectionFailed, match="firewall"):
        await RunSession(address, login, replace(impatient, connect=1.0)).__aenter__()


async def test_a_damaged_private_key_is_a_configuration_error(address: WorkerAddress, timing: Timing) -> None:
    """A key that cannot be read is reported before any connection, and not shown."""
    with pytest.raises(ConfigError) as caught:
        await RunSession(address, Login("ml-user", "-----BEGIN NONSENSE"), timing).__aenter__()
    assert "NONSENSE" not in str(caught.value)


def test_a_login_does_not_show_its_key(login: Login) -> None:
    """What is printed of a login, in a log or a traceback, has no key in it."""
    assert "PRIVATE" not in repr(login)
