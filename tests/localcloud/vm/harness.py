# SPDX-License-Identifier: Apache-2.0
"""What the tests of TPU VMs share: keys, logins, a list of the processes of this machine, bounded waits."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from localcloud.vm.worker.interface import SSHKey, VMDriver, Worker

KERNEL_TIERS = ("bwrap", "sshd")
"""Tiers that promise the end of *every* process."""

WAIT_SECONDS = 240.0
"""Bound on every wait: it ends a test that hangs, and never one on a busy machine."""

KEY = asyncssh.generate_private_key("ssh-ed25519")
STRANGER = asyncssh.generate_private_key("ssh-ed25519")

Start = Callable[..., Awaitable[Worker]]


@dataclass
class Tiers:
    """The working tiers of this machine, and why the others do not work."""

    drivers: dict[str, VMDriver]
    reasons: dict[str, str]


def public(key: asyncssh.SSHKey, user: str = "tpu") -> SSHKey:
    """Returns the metadata line of a key."""
    return SSHKey(user, key.export_public_key().decode())


@contextlib.asynccontextmanager
async def login(
    worker: Worker, key: asyncssh.SSHKey = KEY, user: str = "tpu", host_key: str | None = None
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """Logs in with the host key pinned."""
    known = asyncssh.import_known_hosts(f"[{worker.address}]:{worker.port} {host_key or worker.host_key}\n")
    options: dict[str, Any] = {"username": user, "client_keys": [key], "config": None, "agent_path": None}
    async with asyncssh.connect(worker.address, worker.port, known_hosts=known, **options) as connection:
        yield connection


async def output(connection: asyncssh.SSHClientConnection, command: str) -> str:
    """Returns what a command prints; it must succeed."""
    return str((await connection.run(command, check=True)).stdout).strip()


async def until(condition: Callable[[], bool], what: str) -> None:
    """Waits until ``condition`` holds, and fails with ``what`` when it does not within the bound."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - other processes set no event of ours
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not within {WAIT_SECONDS:.0f} s: {what}")


def held(home: Path, kind: str) -> bool:
    """Tells whether any process of an adversary lives: all its forks share one lock, see ``adversary``."""
    with (home / f"held-{kind}").open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


async def settle(connection: asyncssh.SSHClientConnection, home: Path, kind: str) -> None:
    """Starts an adversary of :mod:`tests.localcloud.vm.adversary` and waits until it has settled in."""
    script = Path(__file__).with_name("adversary.py")
    command = shlex.join([sys.executable, "-I", str(script), kind])
    await connection.run(f"{command} </dev/null >adversary.log 2>&1 &", check=True)
    await until((home / f"started-{kind}").exists, f"adversary {kind} has started")
    assert held(home, kind)
