# SPDX-License-Identifier: Apache-2.0
"""Workers of the two OpenSSH tiers: sshd below a supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from localcloud.vm.processes import proctable
from localcloud.vm.processes.traces import Traces, settled
from localcloud.vm.sshd.isolation import Isolation
from localcloud.vm.sshd.openssh import OpenSSH, command, find_openssh, write_config
from localcloud.vm.sshd.supervisor_client import Supervision, supervise
from localcloud.vm.worker.files import WorkerFiles
from localcloud.vm.worker.interface import SSHKey, SurvivorsLeft, VMError, Worker, WorkerGone, WorkerSpec
from localcloud.vm.worker.registry import WorkerRegistry

BANNER_SECONDS = 120.0
"""Bound on the time from the start of sshd to its banner, 50 ms on an idle machine."""

_PAUSE = 0.01


class SupervisedWorker:
    """A worker whose sshd runs below a supervisor; see :class:`localcloud.vm.worker.interface.Worker`.

    :param spec: what was asked for.
    :param files: its files.
    :param listen: (address, port).
    :param isolation: how its tree ends.
    :param supervision: the running supervisor.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        files: WorkerFiles,
        listen: tuple[str, int],
        isolation: Isolation,
        supervision: Supervision,
    ) -> None:
        self.spec = spec
        self.hostname = spec.hostname
        self.address, self.port = listen
        self._files = files
        self._isolation = isolation
        self._supervision = supervision
        self._traces = Traces(str(files.directory))
        self._killing = asyncio.Lock()
        self.gone = False

    @property
    def host_key(self) -> str:
        """Public half of the current host key."""
        return self._files.host_key

    async def kill(self) -> None:
        """End the tree, and prove that none of the processes seen before is left."""
        async with self._killing:
            if self.gone:
                return
            seen = proctable.tree(self._supervision.process.pid)
            self._isolation.end(self._supervision)
            try:
                status = await self._supervision.ended()
            except TimeoutError as error:
                raise SurvivorsLeft(self.spec.node_id, self.processes()) from error
            left = [] if self._isolation.proves(status) else await self._traces.kill_all()
            left = left or await settled(seen)
            if left:
                raise SurvivorsLeft(self.spec.node_id, left)
            self.gone = True

    async def terminate(self) -> None:
        """Send SIGTERM to all but OpenSSH's own processes."""
        await self._order("terminate")

    async def drop(self) -> None:
        """Kill the sessions' server processes."""
        await self._order("drop")

    async def freeze(self) -> None:
        """Stop the tree, the supervisor excepted."""
        await self._order("freeze")

    async def thaw(self) -> None:
        """Continue what ``freeze`` stopped."""
        await self._order("thaw")

    async def refuse(self) -> None:
        """Kill the listener."""
        await self._order("refuse")

    async def accept(self) -> None:
        """Start the listener and wait for its banner."""
        await self._order("listen")
        try:
            async with asyncio.timeout(BANNER_SECONDS):
                while not await self._has_banner():
                    if await self._order("alive") == "0":
                        raise VMError(f"sshd of {self.hostname} ended at once:\n{self._files.log_tail()}")
                    await asyncio.sleep(_PAUSE)
        except TimeoutError as error:
            text = f"sshd of {self.hostname} sent no banner within {BANNER_SECONDS:.0f} s"
            raise VMError(f"{text}:\n{self._files.log_tail()}") from error

    async def set_keys(self, keys: Iterable[SSHKey]) -> None:
        """Rewrite accounts and authorized keys, which sshd reads at each login."""
        self._check()
        self._files.set_keys(keys)

    async def rotate_host_key(self) -> None:
        """Make a new host key and restart the listener, unless it was refusing."""
        listening = await self._order("alive") == "1"
        self._files.new_host_key()
        if listening:
            await self.refuse()
            await self.accept()

    def processes(self) -> list[int]:
        """Return the tree of the started process."""
        return [] if self.gone else [row.pid for row in proctable.tree(self._supervision.process.pid)]

    async def _order(self, verb: str) -> str:
        self._check()
        try:
            return await self._supervision.order(verb)
        except VMError as error:
            raise VMError(f"{error}\n{self._files.log_tail()}") from error

    def _check(self) -> None:
        if self.gone:
            raise WorkerGone(self.spec)

    async def _has_banner(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(self.address, self.port)
        except ConnectionRefusedError:
            return False
        try:
            return (await reader.readline()).startswith(b"SSH-2.0-")
        except ConnectionError:
            return False
        finally:
            writer.close()


class SupervisedDriver:
    """Starts workers of one OpenSSH tier; see :class:`localcloud.vm.worker.interface.VMDriver`.

    :param server: the installed OpenSSH.
    :param isolation: the tier.
    :param port: the SSH port of every worker; 0 takes a free one.
    """

    def __init__(self, server: OpenSSH, isolation: Isolation, port: int) -> None:
        self._server = server
        self._isolation = isolation
        self._registry = WorkerRegistry(port)
        self.tier = isolation.tier
        self.port = self._registry.port

    async def start(self, spec: WorkerSpec) -> Worker:
        """Start a worker; what was begun is killed when that fails."""
        files = WorkerFiles(spec, self._isolation.user_namespace)
        listen = self._registry.place()
        write_config(self._server, files, listen, spec.environment)
        supervision = await supervise(
            self._isolation.wrapper(spec, files),
            command(self._server, files),
            self._isolation.environment(files),
            files.log,
            files.startup_command(spec),
        )
        worker = SupervisedWorker(spec, files, listen, self._isolation, supervision)
        self._registry.enter(worker)
        try:
            await worker.accept()
            await supervision.order("startup")
        except BaseException:
            await worker.kill()
            raise
        return worker

    async def close(self) -> None:
        """Kill all workers at once, and give the addresses back."""
        await self._registry.close()


async def make_driver(isolation: Isolation, port: int) -> SupervisedDriver:
    """Return a driver of an OpenSSH tier.

    :raises TierUnavailable: when OpenSSH's server is not installed.
    """
    return SupervisedDriver(await find_openssh(), isolation, port)
