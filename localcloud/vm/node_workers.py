# SPDX-License-Identifier: Apache-2.0
"""The workers of one node: started together, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcloud.clock import Clock
from localcloud.faults import FaultRegistry
from localcloud.tpu_state.machines import Machine, Order
from localcloud.vm import power, ssh_faults
from localcloud.vm.worker.interface import VMDriver, Worker, WorkerSpec
from localcloud.vm.worker.ssh_keys import parse_ssh_keys

# More at once only makes all of them late: each start costs a key, a process and a banner.
_STARTS_AT_ONCE = 8


@dataclass(frozen=True)
class WorkerConfig:
    """What the workers of all nodes share.

    :param driver: how one worker is made.
    :param root: below it every node has a directory.
    :param environment: variables of every session on every worker.
    :param clock: for the instants of scripted faults.
    :param faults: scripted faults, point ``vm.ssh``.
    :param starting: bounds how many workers start at the same time.
    """

    driver: VMDriver
    root: Path
    environment: Mapping[str, str]
    clock: Clock
    faults: FaultRegistry
    starting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_STARTS_AT_ONCE))


class NodeWorkers:
    """The workers of one node.

    :param config: driver, directory, faults.
    :param order: which node, how many workers, whose keys.
    :ivar workers: those that run, by worker id.
    """

    def __init__(self, config: WorkerConfig, order: Order) -> None:
        self._config = config
        self._order = order
        self._node_id = order.name.rpartition("/")[2]
        self._scripts: list[list[Mapping[str, Any]]] = []
        self._watches: set[asyncio.Task[None]] = set()
        self.workers: list[Worker] = []
        # The short end of the uid keeps paths short: unix sockets below them have a limit of about 100 characters.
        self.directory = config.root / f"{self._node_id[:24]}-{order.uid & 0xFFFFFF:06x}"

    async def start(self) -> list[Machine]:
        """Start all workers and return them as the API shows them.

        :raises VMError: if one does not start; those that did are still to be killed.
        """
        self._scripts = [self._take_scripts(index) for index in range(self._order.hosts)]
        results = await asyncio.gather(*map(self._start, range(self._order.hosts)), return_exceptions=True)
        self.workers = [result for result in results if not isinstance(result, BaseException)]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        machines = [Machine(worker.address, worker.hostname, worker.host_key) for worker in self.workers]
        for scripts, worker in zip(self._scripts, self.workers, strict=True):
            await ssh_faults.before_ready(scripts, worker)
        return machines

    def _take_scripts(self, index: int) -> list[Mapping[str, Any]]:
        faults = self._config.faults.take_all("vm.ssh", node=self._node_id, worker=str(index), zone=self._order.zone)
        return [fault.params for fault in faults]

    async def _start(self, index: int) -> Worker:
        keys = parse_ssh_keys(self._order.metadata)
        spec = WorkerSpec(
            node_id=self._node_id,
            zone=self._order.zone,
            worker_id=index,
            hostname=f"t1v-n-{self._order.uid & 0xFFFFFFFF:08x}-w-{index}",
            keys=ssh_faults.keys_at_start(self._scripts[index], keys),
            environment={**self._config.environment, power.NODE_VARIABLE: self._order.name},
            directory=self.directory / f"w{index}",
            startup_script=self._order.metadata.get("startup-script", ""),
        )
        async with self._config.starting:
            return await self._config.driver.start(spec)

    def play_scripts(self) -> None:
        """Begin the scripted SSH faults; the node is READY now."""
        keys = parse_ssh_keys(self._order.metadata)
        for scripts, worker in zip(self._scripts, self.workers, strict=True):
            for params in scripts:
                self.watch(ssh_faults.after_ready(params, worker, keys, self._config.clock))

    def watch(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the workers until it ends or they do."""
        task = asyncio.get_running_loop().create_task(work)
        self._watches.add(task)
        task.add_done_callback(self._watch_ended)

    def _watch_ended(self, task: asyncio.Task[None]) -> None:
        self._watches.discard(task)
        report_failure(task)

    async def each(self, action: Callable[[Worker], Awaitable[None]]) -> None:
        """Apply an action to every worker at once."""
        works = [ssh_faults.ignoring_dead_workers(action(worker)) for worker in self.workers]
        await asyncio.gather(*works)

    async def kill(self) -> None:
        """End every process of every worker.

        :raises SurvivorsLeft: when a process is left.
        """
        for watch in set(self._watches):
            watch.cancel()
        await asyncio.gather(*(worker.kill() for worker in self.workers))
        self.workers = []


def report_failure(task: asyncio.Task[Any]) -> None:
    """Log the failure of a task that is not awaited, with its traceback."""
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": "The local cloud failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
