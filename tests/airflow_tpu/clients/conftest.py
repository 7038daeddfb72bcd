# SPDX-License-Identifier: Apache-2.0
"""A worker of the local cloud and a login to it, for the tests of SSH sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from airflow_tpu.clients.ssh import Login, Timing, WorkerAddress
from airflow_tpu.core.source.bundle import Bundle
from airflow_tpu.core.source.selection import Source
from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.interface import SSHKey, Worker, WorkerSpec

# Of the machine's own PATH nothing is needed but this interpreter and the basic tools.
VM_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="session")
def login() -> Login:
    """A key pair of this test session."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return Login("ml-user", key.export_private_key().decode())


@pytest.fixture
def ssh_key(login: Login) -> SSHKey:
    """Its public half, as node metadata carries it."""
    public = asyncssh.import_private_key(login.private_key).export_public_key().decode().strip()
    return SSHKey(login.user, public)


@pytest.fixture
async def worker(tmp_path: Path, ssh_key: SSHKey) -> AsyncIterator[Worker]:
    """A TPU VM of the local cloud, in the strongest tier that works here."""
    driver = await choose_driver("auto", 0, tmp_path / "driver")
    environment = {"PATH": VM_PATH, "LANG": os.environ.get("LANG", "C.UTF-8")}
    spec = WorkerSpec("n1", "us-central2-b", 0, "t1v-n-1-w-0", (ssh_key,), environment, tmp_path / "worker")
    try:
        yield await driver.start(spec)
    finally:
        await driver.close()


@pytest.fixture
def address(worker: Worker) -> WorkerAddress:
    """Where the worker listens, with its host key pinned."""
    return WorkerAddress(worker.address, worker.port, worker.host_key)


@pytest.fixture
def timing() -> Timing:
    """Bounds that a busy machine does not reach: a test that waits for one of them sets it itself."""
    return Timing(boot_window=200.0, connect=100.0, keepalive=100.0, frame=100.0, command=100.0)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A bundle with a script that prints its arguments."""
    script = tmp_path / "scripts" / "say.sh"
    script.parent.mkdir()
    script.write_text('echo "$@"\n')
    return Bundle.build(Source(script.parent, script.name, tmp_path / "home"))
