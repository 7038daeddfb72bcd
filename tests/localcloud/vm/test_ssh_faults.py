# SPDX-License-Identifier: Apache-2.0
"""Scripted SSH faults of a worker, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from localcloud.clock import ManualClock
from localcloud.vm.inprocess.worker import InProcessDriver
from localcloud.vm.ssh_faults import after_ready, before_ready, keys_at_start
from localcloud.vm.worker.interface import SSHKey, Worker, WorkerSpec
from tests.localcloud.vm.harness import KEY, login, output, public

KEYS = (public(KEY),)


@pytest.fixture
async def start(tmp_path: Path) -> Any:
    """Starts workers with a script, up to READY."""
    driver = InProcessDriver(0)

    async def started(params: Mapping[str, Any]) -> Worker:
        keys: tuple[SSHKey, ...] = keys_at_start([params], KEYS)
        worker = await driver.start(WorkerSpec("node-1", "us-central2-b", 0, "w-0", keys, {}, tmp_path / "worker"))
        await before_ready([params], worker)
        return worker

    yield started
    await driver.close()


async def loop_turns() -> None:
    """Lets everything run that is ready to run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def one_second_before(clock: ManualClock, seconds: float, script: asyncio.Task[None]) -> None:
    """Moves the clock until a second before the script acts: it has not acted then."""
    await loop_turns()
    clock.advance(seconds - 1)
    await loop_turns()
    assert not script.done()


async def test_refused_connections_are_accepted_again(start: Any) -> None:
    """A worker refuses connections until ``refuse_seconds`` after READY."""
    clock, params = ManualClock(), {"refuse_seconds": 3600}
    worker = await start(params)
    script = asyncio.ensure_future(after_ready(params, worker, KEYS, clock))
    await one_second_before(clock, 3600, script)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(worker.address, worker.port)
    clock.advance(1)
    await script
    async with login(worker) as connection:
        assert await output(connection, "echo in") == "in"


async def test_late_keys_admit_when_they_are_there(start: Any) -> None:
    """A worker denies the login until ``key_late_seconds`` after READY."""
    clock, params = ManualClock(), {"key_late_seconds": 3600}
    worker = await start(params)
    script = asyncio.ensure_future(after_ready(params, worker, KEYS, clock))
    await one_second_before(clock, 3600, script)
    with pytest.raises(asyncssh.PermissionDenied):
        async with login(worker):
            pytest.fail("logged in before the key was there")
    clock.advance(1)
    await script
    async with login(worker) as connection:
        assert await output(connection, "echo in") == "in"
