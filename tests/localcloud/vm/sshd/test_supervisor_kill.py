# SPDX-License-Identifier: Apache-2.0
"""The death of a TPU VM takes every process with it, whatever the process did to escape."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localcloud.vm.processes import traces
from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.interface import Worker, WorkerGone, WorkerSpec
from tests.localcloud.vm.adversary import KINDS
from tests.localcloud.vm.harness import (
    KERNEL_TIERS,
    KEY,
    WAIT_SECONDS,
    Start,
    Tiers,
    held,
    login,
    output,
    public,
    settle,
    until,
)

pytest_plugins = ("tests.localcloud.vm.fixtures",)
pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[4]
UNTRACEABLE = {"pid_hopper"}
"""What traces cannot be followed fast enough: only a namespace or a subreaper is sure to hold it."""

every_kernel_tier = pytest.mark.parametrize("vm_driver", KERNEL_TIERS, indirect=True)


def survivors(home: Path) -> list[str]:
    """Returns the kinds of adversaries in ``home`` of which a process lives."""
    return [kind for kind in KINDS if (home / f"held-{kind}").exists() and held(home, kind)]


def home_of(tmp_path: Path) -> Path:
    """Returns the home of the first worker of a test."""
    return tmp_path / "worker 0" / "home"


def test_this_machine_runs_real_ssh_servers(vm_tiers: Tiers) -> None:
    """At least one tier with a real sshd works here, so that what follows has been tested with one."""
    assert set(vm_tiers.drivers) & set(KERNEL_TIERS), vm_tiers.reasons


@every_kernel_tier
@pytest.mark.parametrize("kind", KINDS)
async def test_kill_leaves_no_survivor(vm_start: Start, tmp_path: Path, kind: str) -> None:
    """No way of detaching outlives the kill."""
    worker, home = await vm_start(), home_of(tmp_path)
    async with login(worker) as connection:
        await settle(connection, home, kind)
        await worker.kill()
    assert survivors(home) == []


@pytest.mark.parametrize("vm_driver", ["inprocess"], indirect=True)
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - UNTRACEABLE))
async def test_kill_in_process_finds_all_that_can_be_traced(vm_start: Start, tmp_path: Path, kind: str) -> None:
    """The last tier kills whatever still descends from it or names its directory."""
    worker, home = await vm_start(), home_of(tmp_path)
    async with login(worker) as connection:
        await settle(connection, home, kind)
        await worker.kill()
    assert survivors(home) == []


@every_kernel_tier
async def test_kill_takes_all_kinds_at_once(vm_start: Start, tmp_path: Path) -> None:
    """A worker full of adversaries, frozen on top, dies as a whole; the process table lists it before and not after."""
    worker, home = await vm_start(), home_of(tmp_path)
    async with login(worker) as connection:
        for kind in KINDS:
            await settle(connection, home, kind)
        await worker.freeze()
        assert survivors(home) == list(KINDS)
        assert len(worker.processes()) > len(KINDS)
        await worker.kill()
    assert survivors(home) == []
    assert worker.processes() == []
    assert list(traces.touching(str(tmp_path))) == []


@pytest.mark.parametrize("tier", KERNEL_TIERS)
async def test_nothing_survives_the_death_of_the_local_cloud(vm_tiers: Tiers, tmp_path: Path, tier: str) -> None:
    """kill -9 of the process that started a worker ends the worker and all that ran in it."""
    if tier in vm_tiers.reasons:
        pytest.skip(vm_tiers.reasons[tier])
    home = tmp_path / "worker" / "home"
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.localcloud.vm.host", tier, str(tmp_path)),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    assert host.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        assert await host.stdout.readline() == b"ready\n"
    assert survivors(home) == list(KINDS)
    host.kill()
    await host.wait()
    await until(lambda: not survivors(home) and not list(traces.touching(str(tmp_path))), "all processes have ended")


@pytest.mark.parametrize("tier", KERNEL_TIERS)
async def test_workers_end_with_the_thread_that_started_them(vm_tiers: Tiers, tmp_path: Path, tier: str) -> None:
    """A thread that ends without closing its driver, as after an error, leaves no worker behind."""
    if tier in vm_tiers.reasons:
        pytest.skip(vm_tiers.reasons[tier])
    found: list[Worker] = []

    async def start() -> None:
        driver = await choose_driver(tier, 0, tmp_path)
        spec = WorkerSpec("node-1", "us-central2-b", 0, "t1v-n-1-w-0", (), {}, tmp_path / "worker")
        found.append(await driver.start(spec))

    thread = threading.Thread(target=lambda: asyncio.run(start()))
    thread.start()
    await asyncio.to_thread(thread.join)
    await until(lambda: not list(traces.touching(str(tmp_path))), "the worker has ended")
    assert found[0].processes() == []


@every_kernel_tier
async def test_kill_after_the_death_of_the_supervisor(vm_start: Start, tmp_path: Path) -> None:
    """When the worker's first process was killed by hand, the kill still finds what names the worker's directory."""
    worker, home = await vm_start(), home_of(tmp_path)
    async with login(worker) as connection:
        for kind in sorted(KINDS.keys() - UNTRACEABLE):
            await settle(connection, home, kind)
        os.kill(worker.processes()[0], signal.SIGKILL)
        await worker.kill()
    await until(lambda: not survivors(home), "all processes have ended")
    assert worker.processes() == []


async def test_kill_is_idempotent_and_final(vm_start: Start) -> None:
    """A second kill, or two at once, are no error; any other order to a dead worker is."""
    worker = await vm_start()
    await asyncio.gather(worker.kill(), worker.kill())
    await worker.kill()
    orders = (worker.terminate, worker.drop, worker.freeze, worker.thaw, worker.refuse, worker.accept)
    for order in (*orders, worker.rotate_host_key):
        with pytest.raises(WorkerGone, match="was killed"):
            await order()
    with pytest.raises(WorkerGone):
        await worker.set_keys([])
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(worker.address, worker.port)


async def test_terminate_gives_notice(vm_start: Start, tmp_path: Path) -> None:
    """SIGTERM reaches attached and detached processes of the user, while the session stays."""
    worker, home = await vm_start(), home_of(tmp_path)
    async with login(worker) as connection:
        for name, prefix in (("attached", ""), ("detached", "setsid")):
            script = f"trap 'touch {name}-noticed; exit' TERM; touch {name}-ready; while :; do sleep 0.05; done"
            await connection.run(f'{prefix} bash -c "{script}" </dev/null >/dev/null 2>&1 &', check=True)
            await until((home / f"{name}-ready").exists, f"{name} runs")
        await worker.terminate()
        for name in ("attached", "detached"):
            await until((home / f"{name}-noticed").exists, f"{name} has got SIGTERM")
        assert await output(connection, "echo still here") == "still here"


async def test_closing_a_driver_kills_all_its_workers(vm_tiers: Tiers, tmp_path: Path) -> None:
    """A closed driver leaves no process and gives its addresses back."""
    for tier in vm_tiers.drivers:
        driver = await choose_driver(tier, 0, tmp_path)
        specs = [
            WorkerSpec(
                "node-1", "us-central2-b", number, f"w-{number}", (public(KEY),), {}, tmp_path / f"{tier}{number}"
            )
            for number in range(4)
        ]
        workers = await asyncio.gather(*(driver.start(spec) for spec in specs))
        assert len({worker.address for worker in workers}) == len(workers)
        await driver.close()
        assert [worker.processes() for worker in workers] == [[]] * len(workers)
        assert list(traces.touching(str(tmp_path))) == []
