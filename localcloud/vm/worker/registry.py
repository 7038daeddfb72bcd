# SPDX-License-Identifier: Apache-2.0
"""The workers of a driver and the addresses they are given: what no tier does differently."""

from __future__ import annotations

import asyncio

from localcloud.vm.worker.addresses import Addresses
from localcloud.vm.worker.interface import Worker


class WorkerRegistry:
    """Knows every worker that a driver has started, until it is killed.

    :param port: the SSH port of all of them; 0 takes a free one.
    :raises VMError: when the port cannot be bound.
    """

    def __init__(self, port: int) -> None:
        self._addresses = Addresses(port)
        self._workers: list[Worker] = []

    @property
    def port(self) -> int:
        """The SSH port of every worker."""
        return self._addresses.port

    def place(self) -> tuple[str, int]:
        """Return where a new worker is to listen: (address, port)."""
        return self._addresses.take(), self.port

    def enter(self, worker: Worker) -> None:
        """Take a worker in, to be killed with all others; forget those that are dead already."""
        self._workers = [other for other in self._workers if not other.gone] + [worker]

    async def close(self) -> None:
        """Kill all workers at once, and give the addresses back.

        :raises SurvivorsLeft: when a process is left.
        """
        results = await asyncio.gather(*(worker.kill() for worker in self._workers), return_exceptions=True)
        self._workers.clear()
        self._addresses.close()
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise failures[0]
