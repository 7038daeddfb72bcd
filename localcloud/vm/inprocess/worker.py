# SPDX-License-Identifier: Apache-2.0
"""Tier ``inprocess``: an SSH server in this very process, for machines without OpenSSH's. The last resort."""

from __future__ import annotations

import functools
import signal
import socket
from collections.abc import Iterable

import asyncssh

from localcloud.vm.inprocess.relay import Relay
from localcloud.vm.inprocess.shell import HomeSFTP, Shell, server_factory
from localcloud.vm.processes import proctable
from localcloud.vm.processes.traces import Traces, send
from localcloud.vm.worker.files import WorkerFiles
from localcloud.vm.worker.interface import SSHKey, SurvivorsLeft, Worker, WorkerGone, WorkerSpec
from localcloud.vm.worker.registry import WorkerRegistry


class InProcessWorker:
    """A worker without a server process of its own; see :class:`localcloud.vm.worker.interface.Worker`.

    Its processes are found by descent from the commands it started and by its directory (working directory, open
    files, arguments, environment). A process that detaches itself and either leaves no such trace or changes its pid
    all the time escapes: that is what the other tiers are for. No terminals.

    :param spec: what was asked for.
    :param listen: (address, port).
    """

    def __init__(self, spec: WorkerSpec, listen: tuple[str, int]) -> None:
        self.spec = spec
        self.hostname = spec.hostname
        self.address, self.port = listen
        self._files = WorkerFiles(spec)
        self._shell = Shell(self._files.home, spec.environment)
        self._relay = Relay(self.address, self.port, self._serve)
        self._traces = Traces(str(self._files.directory))
        self._stopped: list[proctable.Process] = []
        self.gone = False

    @property
    def host_key(self) -> str:
        """Public half of the current host key."""
        return self._files.host_key

    async def kill(self) -> None:
        """Cut all connections, then stop and kill what can be found until nothing is found."""
        if self.gone:
            return
        self._relay.refuse()
        self._relay.thaw()
        self._relay.drop()
        left = await self._traces.kill_all(self._shell.started) if self._shell.used else []
        if left:
            raise SurvivorsLeft(self.spec.node_id, left)
        self.gone = True

    async def terminate(self) -> None:
        """Send SIGTERM to every process."""
        self._check()
        send(self._rows(), signal.SIGTERM)

    async def drop(self) -> None:
        """Cut the connections."""
        self._check()
        self._relay.drop()

    async def freeze(self) -> None:
        """Stop the processes, and the bytes of all connections."""
        self._check()
        self._relay.freeze()
        running = [row for row in self._rows() if row.state not in "Tt"]
        send(running, signal.SIGSTOP)
        self._stopped += running

    async def thaw(self) -> None:
        """Continue what ``freeze`` stopped."""
        self._check()
        send(proctable.alive(self._stopped), signal.SIGCONT)
        self._stopped.clear()
        self._relay.thaw()

    async def refuse(self) -> None:
        """Close the listener."""
        self._check()
        self._relay.refuse()

    async def accept(self) -> None:
        """Open the listener."""
        self._check()
        await self._relay.accept()

    async def set_keys(self, keys: Iterable[SSHKey]) -> None:
        """Rewrite the authorized keys, which are read at each login."""
        self._check()
        self._files.set_keys(keys)

    async def rotate_host_key(self) -> None:
        """Make a new host key, shown to the next connection."""
        self._check()
        self._files.new_host_key()

    async def run_startup_script(self) -> None:
        """Start the startup script, as the guest agent does when the machine has booted."""
        command = self._files.startup_command(self.spec)
        if command:
            await self._shell.spawn(command)

    def processes(self) -> list[int]:
        """Return what can be found."""
        return [] if self.gone else [row.pid for row in self._rows()]

    def _check(self) -> None:
        if self.gone:
            raise WorkerGone(self.spec)

    def _rows(self) -> list[proctable.Process]:
        return list({row.pid: row for row in self._traces.rows(self._shell.started)}.values())

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await asyncssh.run_server(
                connection,
                server_factory=server_factory(self._files.keys),
                server_host_keys=[str(self._files.host_key_file)],
                process_factory=self._shell.run,
                sftp_factory=functools.partial(HomeSFTP, home=self._files.home),
                encoding=None,
                allow_scp=True,
                line_editor=False,
                login_timeout=120,
            )
        except (asyncssh.Error, OSError):
            connection.close()  # a client that left in the handshake, or was refused


class InProcessDriver:
    """Starts workers of the last tier; see :class:`localcloud.vm.worker.interface.VMDriver`."""

    tier = "inprocess"

    def __init__(self, port: int) -> None:
        self._registry = WorkerRegistry(port)
        self.port = self._registry.port

    async def start(self, spec: WorkerSpec) -> Worker:
        """Start a worker."""
        worker = InProcessWorker(spec, self._registry.place())
        await worker.accept()
        self._registry.enter(worker)
        await worker.run_startup_script()
        return worker

    async def close(self) -> None:
        """Kill all workers, and give the addresses back."""
        await self._registry.close()
