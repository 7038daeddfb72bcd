# SPDX-License-Identifier: Apache-2.0
"""What a worker is made of, and what every driver of TPU VMs promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TIERS = ("bwrap", "sshd", "inprocess")
"""Tiers of isolation, strongest first: the order in which ``auto`` tries them."""


class VMError(RuntimeError):
    """A worker could not be started or controlled; the text says what to do."""


class TierUnavailable(VMError):
    """This machine cannot run the tier: a program is missing, or the kernel refuses."""


class WorkerGone(VMError):
    """The worker was killed; nothing but ``gone``, ``kill`` and ``processes`` makes sense any more.

    :param spec: what the worker was.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(f"worker {spec.hostname} of {spec.node_id} was killed")


class SurvivorsLeft(VMError):
    """Processes of a worker are alive after its kill.

    :param node_id: the node whose worker was killed.
    :param pids: the processes that are left.
    """

    def __init__(self, node_id: str, pids: Iterable[int]) -> None:
        self.node_id = node_id
        self.pids = tuple(sorted(pids))
        super().__init__(f"processes of {node_id} survived its kill: {', '.join(map(str, self.pids))}")


@dataclass(frozen=True)
class SSHKey:
    """One line of the node metadata ``ssh-keys``: ``USER:KEYTYPE BASE64 COMMENT``.

    :param user: login name; the worker knows it from the moment the key is set, as with Google's guest agent.
    :param public_key: ``KEYTYPE BASE64 COMMENT``.
    """

    user: str
    public_key: str


@dataclass(frozen=True)
class WorkerSpec:
    """One worker (VM) of a node.

    :param node_id: the node it belongs to.
    :param zone: Google zone, for example ``us-central2-b``.
    :param worker_id: index in the slice, from 0.
    :param hostname: host name seen inside (only the ``bwrap`` tier can set it).
    :param keys: who may log in from the start.
    :param environment: variables of every session, non-interactive commands included.
    :param directory: the worker's own directory; created when missing. Its ``home`` is every login's home.
    :param startup_script: metadata ``startup-script``, which the guest agent runs at each boot; empty for none.
    """

    node_id: str
    zone: str
    worker_id: int
    hostname: str
    keys: tuple[SSHKey, ...]
    environment: Mapping[str, str]
    directory: Path
    startup_script: str = ""


class Worker(Protocol):
    """A running worker. All orders but ``kill`` raise :class:`WorkerGone` once it is dead."""

    @property
    def address(self) -> str:
        """Loopback address of its own, ``127.x.y.z``."""

    @property
    def port(self) -> int:
        """TCP port of its SSH server: the same for all workers of a driver."""

    @property
    def host_key(self) -> str:
        """Public host key as guest attributes show it: ``ssh-ed25519 BASE64``."""

    @property
    def hostname(self) -> str:
        """Host name of the spec."""

    @property
    def gone(self) -> bool:
        """Whether it was killed."""

    async def kill(self) -> None:
        """End the whole process tree by SIGKILL, the SSH server included; idempotent.

        :raises SurvivorsLeft: when a process of the tree is alive afterwards.
        """

    async def terminate(self) -> None:
        """Send SIGTERM to the users' processes, the notice before a preemption; wait for nothing."""

    async def drop(self) -> None:
        """Cut the established SSH connections; detached processes live on."""

    async def freeze(self) -> None:
        """Stop every process: connections stay open and silent, new ones hang. Lose no byte."""

    async def thaw(self) -> None:
        """Continue what ``freeze`` stopped, and nothing else."""

    async def refuse(self) -> None:
        """Close the listener: new connections are refused, established ones live on."""

    async def accept(self) -> None:
        """Open the listener again."""

    async def set_keys(self, keys: Iterable[SSHKey]) -> None:
        """Replace the authorized keys (and login names), effective for the next login."""

    async def rotate_host_key(self) -> None:
        """Make a new host key; established connections live on."""

    def processes(self) -> list[int]:
        """Process ids of the tree as this machine numbers them; empty after ``kill``."""


class VMDriver(Protocol):
    """Starts workers, each with an SSH server on an address of its own."""

    @property
    def tier(self) -> str:
        """One of :data:`TIERS`."""

    @property
    def port(self) -> int:
        """The SSH port of every worker."""

    async def start(self, spec: WorkerSpec) -> Worker:
        """Start a worker and return when its SSH server has sent its banner.

        :raises VMError: when it cannot; the end of the server's log is in the text.
        """

    async def close(self) -> None:
        """Kill all workers.

        :raises SurvivorsLeft: when a process is left.
        """
