"""The VMs of all nodes, with real SSH servers: keeps what :class:`localcloud.tpu_state.machines.Machines` promises."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from localcloud.tpu_state.machines import Machine, Order
from localcloud.vm.driver import VMError
from localcloud.vm.node_workers import Crew, Yard, report_failure
from localcloud.vm.progress import wait_for_step
from localcloud.vm.ssh_keys import parse_ssh_keys


class Fleet:
    """Starts, controls and ends the workers of all nodes; all calls from the thread of one event loop.

    :param yard: driver, place and faults.
    """

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._crews: dict[str, Crew] = {}
        self._boots: dict[str, asyncio.Task[None]] = {}
        self._places: dict[str, Path] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def boot(self, order: Order, ready: Callable[[Sequence[Machine]], None], failed: Callable[[str], None]) -> None:
        """Start the workers of a node; call back when all answer, or when one cannot be started."""
        crew = self._crews[order.name] = Crew(self._yard, order)
        self._places[order.name] = crew.directory
        self._boots[order.name] = self._spawn(self._boot(crew, ready, failed))

    async def _boot(
        self, crew: Crew, ready: Callable[[Sequence[Machine]], None], failed: Callable[[str], None]
    ) -> None:
        try:
            machines = await crew.start()
        except (VMError, OSError) as error:
            failed(f"The VM did not start: {error}")
            return
        ready(machines)
        crew.play_scripts()

    def kill(self, node: str, gone: Callable[[], None]) -> None:
        """End every process of a node's workers; call back when none is left."""
        self._spawn(self._kill(self._crews.pop(node, None), self._boots.pop(node, None), gone))

    async def _kill(self, crew: Crew | None, boot: asyncio.Task[None] | None, gone: Callable[[], None]) -> None:
        if boot is not None:
            # A boot is not cancelled but awaited: what it starts in its last moment must be killed as well.
            await asyncio.wait([boot])
        if crew is not None:
            await crew.kill()
        gone()

    def discard(self, node: str) -> None:
        """Delete the directories of a killed node."""
        place = self._places.pop(node, None)
        if place is not None:
            self._spawn(asyncio.to_thread(shutil.rmtree, place, ignore_errors=True))

    def warn(self, node: str) -> None:
        """Send TERM to the user's processes on all workers."""
        if node in self._crews:
            self._spawn(self._crews[node].each(lambda worker: worker.terminate()))

    def set_metadata(self, node: str, metadata: Mapping[str, str]) -> None:
        """Hand the new ``ssh-keys`` to the running workers."""
        keys = parse_ssh_keys(metadata)
        if node in self._crews:
            self._spawn(self._crews[node].each(lambda worker: worker.set_keys(keys)))

    def when_step(self, node: str, step: int, reached: Callable[[], None]) -> None:
        """Call back when a ``progress.json`` on one of the workers shows the step."""
        crew = self._crews[node]
        crew.watch(wait_for_step(crew.directory, step, self._yard.clock, reached))

    def crew(self, node: str) -> Crew | None:
        """Return the workers of a node, if it has any."""
        return self._crews.get(node)

    def processes(self) -> list[int]:
        """Return the ids of all processes of all workers."""
        workers = [worker for crew in self._crews.values() for worker in crew.workers]
        return sorted(pid for worker in workers for pid in worker.processes())

    async def close(self) -> None:
        """End everything.

        :raises SurvivorsLeft: when a process is left.
        """
        for name in list(self._crews):
            self.kill(name, lambda: None)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._yard.driver.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        report_failure(task)
