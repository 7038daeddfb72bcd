# SPDX-License-Identifier: Apache-2.0
"""The VMs of all nodes, with real SSH servers: keeps what :class:`localcloud.tpu_state.machines.Machines` promises."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from localcloud.tpu_state.machines import Machine, Order
from localcloud.vm.node_workers import NodeWorkers, WorkerConfig, report_failure
from localcloud.vm.progress import wait_for_step
from localcloud.vm.worker.interface import VMError
from localcloud.vm.worker.ssh_keys import parse_ssh_keys


class WorkerPool:
    """Starts, controls and ends the workers of all nodes; all calls from the thread of one event loop.

    :param config: what all nodes share: driver, directory, faults.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._nodes: dict[str, NodeWorkers] = {}
        self._boots: dict[str, asyncio.Task[None]] = {}
        self._places: dict[str, Path] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def boot(self, order: Order, ready: Callable[[Sequence[Machine]], None], failed: Callable[[str], None]) -> None:
        """Start the workers of a node; call back when all answer, or when one cannot be started."""
        workers = self._nodes[order.name] = NodeWorkers(self._config, order)
        self._places[order.name] = workers.directory
        self._boots[order.name] = self._spawn(self._boot(workers, ready, failed))

    async def _boot(
        self, workers: NodeWorkers, ready: Callable[[Sequence[Machine]], None], failed: Callable[[str], None]
    ) -> None:
        try:
            machines = await workers.start()
        except (VMError, OSError) as error:
            failed(f"The VM did not start: {error}")
            return
        ready(machines)
        workers.play_scripts()

    def kill(self, node: str, gone: Callable[[], None]) -> None:
        """End every process of a node's workers; call back when none is left."""
        self._spawn(self._kill(self._nodes.pop(node, None), self._boots.pop(node, None), gone))

    async def _kill(
        self, workers: NodeWorkers | None, boot: asyncio.Task[None] | None, gone: Callable[[], None]
    ) -> None:
        if boot is not None:
            # A boot is not cancelled but awaited: what it starts in its last moment must be killed as well.
            await asyncio.wait([boot])
        if workers is not None:
            await workers.kill()
        gone()

    def discard(self, node: str) -> None:
        """Delete the directories of a killed node."""
        place = self._places.pop(node, None)
        if place is not None:
            self._spawn(asyncio.to_thread(shutil.rmtree, place, ignore_errors=True))

    def warn(self, node: str) -> None:
        """Send TERM to the user's processes on all workers."""
        if node in self._nodes:
            self._spawn(self._nodes[node].each(lambda worker: worker.terminate()))

    def set_metadata(self, node: str, metadata: Mapping[str, str]) -> None:
        """Hand the new ``ssh-keys`` to the running workers."""
        keys = parse_ssh_keys(metadata)
        if node in self._nodes:
            self._spawn(self._nodes[node].each(lambda worker: worker.set_keys(keys)))

    def when_step(self, node: str, step: int, reached: Callable[[], None]) -> None:
        """Call back when a ``progress.json`` on one of the workers shows the step."""
        workers = self._nodes[node]
        workers.watch(wait_for_step(workers.directory, step, self._config.clock, reached))

    def workers_of(self, node: str) -> NodeWorkers | None:
        """Return the workers of a node, if it has any."""
        return self._nodes.get(node)

    def processes(self) -> list[int]:
        """Return the ids of all processes of all workers."""
        workers = [worker for node in self._nodes.values() for worker in node.workers]
        return sorted(pid for worker in workers for pid in worker.processes())

    async def close(self) -> None:
        """End everything.

        :raises SurvivorsLeft: when a process is left.
        """
        for name in list(self._nodes):
            self.kill(name, lambda: None)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._config.driver.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        report_failure(task)
