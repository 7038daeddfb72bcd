# SPDX-License-Identifier: Apache-2.0
"""What the state machine asks of TPU VMs, and simulated VMs for virtual time.

The state machine never waits for a VM: it asks and is called back. :class:`localcloud.vm.worker_pool.WorkerPool`
answers with real SSH servers, :class:`SimulatedMachines` at once and without a process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Machine:
    """One worker VM as the API shows it.

    :param address: where it listens.
    :param hostname: its own name; the ``hostname`` guest attribute.
    :param host_key: ``ssh-ed25519 BASE64``; published as a guest attribute.
    """

    address: str
    hostname: str
    host_key: str


@dataclass(frozen=True)
class Order:
    """The VMs of one node.

    :param name: full node name.
    :param uid: numeric id of this life of the node; a re-created node has another.
    :param zone: where.
    :param hosts: how many workers.
    :param metadata: node metadata; ``ssh-keys`` has the keys that may log in.
    """

    name: str
    uid: int
    zone: str
    hosts: int
    metadata: Mapping[str, str]


class Machines(Protocol):
    """The VMs of all nodes."""

    def boot(self, order: Order, ready: Callable[[Sequence[Machine]], None], failed: Callable[[str], None]) -> None:
        """Start the VMs; call back once, in a later turn or at once."""
        ...

    def kill(self, node: str, gone: Callable[[], None]) -> None:
        """End every process of the node's VMs; call back when none is left. Unknown nodes are gone already."""
        ...

    def discard(self, node: str) -> None:
        """Throw the disks of a killed node away: the node itself is gone."""
        ...

    def warn(self, node: str) -> None:
        """Send the user's processes TERM: the preemption notice."""
        ...

    def set_metadata(self, node: str, metadata: Mapping[str, str]) -> None:
        """Hand changed metadata to the running VMs."""
        ...

    def when_step(self, node: str, step: int, reached: Callable[[], None]) -> None:
        """Call back once when the training on the node reports that it has reached ``step``."""
        ...


class SimulatedMachines:
    """VMs without processes: everything succeeds at once.

    :ivar running: names of the nodes whose VMs are up.
    :ivar steps: callbacks waiting for a training step, by node; a test calls :meth:`reach`.
    """

    def __init__(self) -> None:
        self.running: dict[str, Order] = {}
        self.warned: list[str] = []
        self._steps: dict[str, list[tuple[int, Callable[[], None]]]] = {}

    def boot(self, order: Order, ready: Callable[[Sequence[Machine]], None], failed: Callable[[str], None]) -> None:
        """Report made-up addresses at once."""
        self.running[order.name] = order
        ready([self._machine(order, worker) for worker in range(order.hosts)])

    def _machine(self, order: Order, worker: int) -> Machine:
        digest = hashlib.sha256(f"{order.uid}/{worker}".encode()).hexdigest()
        address = ".".join(["127", *(str(int(digest[index : index + 2], 16)) for index in (0, 2, 4))])
        return Machine(address, f"t1v-n-{order.uid & 0xFFFFFFFF:08x}-w-{worker}", f"ssh-ed25519 {digest}")

    def kill(self, node: str, gone: Callable[[], None]) -> None:
        """Forget the VMs of the node."""
        self.running.pop(node, None)
        gone()

    def discard(self, node: str) -> None:
        """There are no disks."""

    def warn(self, node: str) -> None:
        """Note that the node was warned."""
        self.warned.append(node)

    def set_metadata(self, node: str, metadata: Mapping[str, str]) -> None:
        """Replace the metadata in the order of the node."""
        if node in self.running:
            order = self.running[node]
            self.running[node] = Order(order.name, order.uid, order.zone, order.hosts, dict(metadata))

    def when_step(self, node: str, step: int, reached: Callable[[], None]) -> None:
        """Keep the callback for :meth:`reach`."""
        self._steps.setdefault(node, []).append((step, reached))

    def reach(self, node: str, step: int) -> None:
        """Pretend that the training on the node has reached ``step``."""
        waiting = self._steps.pop(node, [])
        self._steps[node] = [entry for entry in waiting if entry[0] > step]
        for wanted, reached in waiting:
            if wanted <= step:
                reached()
