# SPDX-License-Identifier: Apache-2.0
"""How the VMs of a node come up: booted, READY once they all answer, or abandoned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from google.cloud.tpu_v2.types import Node
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.tpu_state.machines import Machine
from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.registry import NodeRegistry
from localcloud.tpu_state.nodes.shutdown import RUNNING, NodeShutdown
from localcloud.tpu_state.operations import OperationRegistry

Failed = Callable[[NodeRecord, str], None]


class NodeBoot:
    """Starts the VMs of nodes.

    :param registry: the nodes.
    :param shutdown: removes a node whose VMs do not start.
    :param operations: the create and start operations.
    """

    def __init__(self, registry: NodeRegistry, shutdown: NodeShutdown, operations: OperationRegistry) -> None:
        self._registry = registry
        self._shutdown = shutdown
        self._operations = operations

    def start(self, record: NodeRecord, failed: Failed | None = None) -> None:
        """Start the VMs of a node in CREATING, STARTING or RESTARTING; it is READY once they all answer.

        :param failed: called with the reason if a VM does not start; by default the node is removed.
        """
        if not self._registry.holds(record) or record.state not in RUNNING:
            return
        record.boots += 1
        ready = partial(self._ready, record, record.boots)
        self._registry.backend.machines.boot(
            record.order(), ready, partial(self._failed, record, failed or self._abandon)
        )

    def _ready(self, record: NodeRecord, boot: int, machines: Sequence[Machine]) -> None:
        if record.boots != boot or record.state not in RUNNING:
            return
        record.machines = tuple(machines)
        if record.state == Node.State.READY:
            record.health = Node.Health.HEALTHY
        else:
            self._registry.move(record, Node.State.READY)
        if record.create is not None:
            self._operations.succeed(record.create, Node.pb(record.view()))
            record.create = None

    def _failed(self, record: NodeRecord, failed: Failed, reason: str) -> None:
        if record.state in RUNNING:
            failed(record, reason)

    def _abandon(self, record: NodeRecord, reason: str) -> None:
        """Remove a node that never came up; its create operation ends with code 13."""
        if record.create is not None:
            self._operations.fail(record.create, CloudError(code_pb2.INTERNAL, errors.eid(reason or "internal error")))
        record.create = None
        self._shutdown.vanish(record)
