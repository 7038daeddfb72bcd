# SPDX-License-Identifier: Apache-2.0
"""How nodes go: preempted, terminated, powered off, deleted.

A preempted node keeps its name and its quota until it is deleted (Google's pages on preemptible TPUs and on TPU
VM states, https://github.com/skypilot-org/skypilot/pull/1483).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from google.cloud.tpu_v2.types import Node
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.registry import NodeRegistry
from localcloud.tpu_state.operations import OperationRegistry

State = Node.State
RUNNING = frozenset({State.CREATING, State.READY, State.RESTARTING, State.REIMAGING, State.REPAIRING, State.STARTING})
"""States in which a node has VMs, or is about to have them."""


class NodeShutdown:
    """Ends the VMs of nodes, and nodes.

    :param registry: the nodes.
    :param operations: pending create operations fail when their node is lost.
    """

    def __init__(self, registry: NodeRegistry, operations: OperationRegistry) -> None:
        self._registry = registry
        self._operations = operations
        self._backend = registry.backend

    def preempt(self, record: NodeRecord, notice: float | None = None) -> None:
        """Take a node away, as Google does with spot capacity.

        :param notice: seconds between TERM to the user's processes and the end; the configured notice by default.
        :raises CloudError: FAILED_PRECONDITION if the node has no VMs to lose.
        """
        if record.state not in RUNNING:
            raise errors.precondition(f"Node '{record.name}' is not running: {record.state}")
        seconds = self._backend.settings.preemption_notice if notice is None else notice
        if seconds <= 0:
            self._lose(record, State.PREEMPTED)
            return
        self._backend.machines.warn(record.name)
        self._backend.later(seconds, partial(self._lose, record, State.PREEMPTED))

    def terminate(self, record: NodeRecord) -> None:
        """End a node that has reached the age limit of the preemptible tier."""
        self._lose(record, State.TERMINATED)

    def power_off(self, record: NodeRecord) -> None:
        """Stop the VMs of a node because ``shutdown`` was run on one of them.

        What Google shows then is not documented. Here it is what the API has for it: STOPPED where a node can be
        stopped, else TERMINATED, with which a queued resource ends as by any loss. Name and quota stay.

        :raises CloudError: FAILED_PRECONDITION if the node is not READY.
        """
        if record.state != State.READY:
            raise errors.precondition(f"Node '{record.name}' is not running: {record.state}")
        if record.queued or record.kind.hosts > 1:
            self._lose(record, State.TERMINATED)
            return
        record.boots += 1
        self.stop(record)

    def stop(
        self, record: NodeRecord, *, by_user: bool = False, stopped: Callable[[bool], None] = lambda _: None
    ) -> None:
        """End the VMs and keep the node: STOPPING, then STOPPED.

        :param stopped: called at the end with False if the node was deleted while it was stopped.
        """
        self._registry.move(record, State.STOPPING, by_user=by_user)
        record.machines = ()

        def ended() -> None:
            still_stopping = record.state == State.STOPPING
            if still_stopping:
                self._registry.move(record, State.STOPPED, by_user=by_user)
            stopped(still_stopping)

        later = partial(self._backend.later, self._backend.latencies.changing, ended)
        self._backend.machines.kill(record.name, later)

    def _lose(self, record: NodeRecord, state: int) -> None:
        """Kill the VMs of a node that the service takes away; a queued resource's node is then deleted."""
        if not self._registry.holds(record) or record.state not in RUNNING:
            return
        lost_in_creation = record.create
        record.boots += 1
        record.machines = ()
        record.create = None
        self._registry.move(record, state)
        self._backend.machines.kill(record.name, lambda: None)
        if lost_in_creation is not None:
            self._operations.fail(lost_in_creation, errors.no_capacity(record.where.zone))
        if record.queued:
            self.remove(record, by_user=False)

    def remove(self, record: NodeRecord, *, by_user: bool, done: Callable[[], None] = lambda: None) -> None:
        """Delete a node: DELETING, VMs killed, then gone. The name stays taken until then."""
        record.boots += 1
        record.machines = ()
        if record.create is not None:
            aborted = CloudError(code_pb2.ABORTED, errors.eid(f"Node '{record.name}' was deleted while it was created"))
            self._operations.fail(record.create, aborted)
            record.create = None
        if record.state != State.DELETING:
            self._registry.move(record, State.DELETING, by_user=by_user)

        def gone() -> None:
            self._registry.drop(record, by_user=by_user)
            done()

        later = partial(self._backend.later, self._backend.latencies.deleting, gone)
        self._backend.machines.kill(record.name, later)

    def vanish(self, record: NodeRecord) -> None:
        """Remove a node at once, VMs included."""
        if self._registry.holds(record):
            record.boots += 1
            self._backend.machines.kill(record.name, partial(self._registry.drop, record, by_user=False))
