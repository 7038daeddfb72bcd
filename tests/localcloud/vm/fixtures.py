# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of TPU VMs: one driver per tier, and workers that are gone afterwards."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from localcloud.vm.processes import proctable
from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.interface import TIERS, SSHKey, TierUnavailable, VMDriver, Worker, WorkerSpec
from tests.localcloud.vm.harness import KEY, Start, Tiers, public


@pytest.fixture(scope="session")
def vm_tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiers]:
    """Probes every tier once."""
    tiers = Tiers({}, {})
    root = tmp_path_factory.mktemp("drivers")
    for tier in TIERS:
        try:
            tiers.drivers[tier] = asyncio.run(choose_driver(tier, 0, root))
        except TierUnavailable as reason:
            tiers.reasons[tier] = str(reason)
    yield tiers
    for driver in tiers.drivers.values():
        asyncio.run(driver.close())


@pytest.fixture(params=TIERS)
def vm_driver(request: pytest.FixtureRequest, vm_tiers: Tiers) -> VMDriver:
    """A driver of each tier; one that this machine lacks is reported with the reason."""
    if request.param in vm_tiers.reasons:
        pytest.skip(vm_tiers.reasons[request.param])
    return vm_tiers.drivers[request.param]


@pytest.fixture
async def vm_start(vm_driver: VMDriver, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts workers, and proves at the end that none of their processes is left."""
    workers: list[Worker] = []
    numbers = itertools.count()

    async def start(
        keys: Sequence[SSHKey] = (public(KEY),),
        environment: Mapping[str, str] | None = None,
        startup_script: str = "",
        directory: str = "",
    ) -> Worker:
        number = next(numbers)
        spec = WorkerSpec(
            node_id="node-1",
            zone="us-central2-b",
            worker_id=number,
            hostname=f"t1v-n-1-w-{number}",
            keys=tuple(keys),
            environment=environment or {},
            directory=tmp_path / (directory or f"worker {number}"),
            startup_script=startup_script,
        )
        worker = await vm_driver.start(spec)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        listed = [row for pid in worker.processes() if (row := proctable.read(pid))]
        await worker.kill()
        assert worker.processes() == []
        assert proctable.alive(listed) == []
