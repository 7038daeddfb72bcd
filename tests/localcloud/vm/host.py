# SPDX-License-Identifier: Apache-2.0
"""A process that starts a worker full of adversaries and then waits to be killed.

Run as ``python -m tests.localcloud.vm.host TIER DIRECTORY``; prints ``ready`` when all have settled in.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from localcloud.vm.tiers import choose_driver
from localcloud.vm.worker.interface import WorkerSpec
from tests.localcloud.vm.adversary import KINDS
from tests.localcloud.vm.harness import KEY, login, public, settle


async def main(tier: str, directory: Path) -> None:
    """Starts everything."""
    driver = await choose_driver(tier, 0, directory)
    spec = WorkerSpec("node-1", "us-central2-b", 0, "t1v-n-1-w-0", (public(KEY),), {}, directory / "worker")
    worker = await driver.start(spec)
    async with login(worker) as connection:
        for kind in KINDS:
            await settle(connection, spec.directory / "home", kind)
        print("ready", flush=True)  # noqa: T201 - the sign that the test waits for
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
