# SPDX-License-Identifier: Apache-2.0
"""What is true of one project: its nodes, queued resources and operations, in one object."""

from __future__ import annotations

from typing import Any

from google.cloud.tpu_v2.types import Node

from localcloud.rules import errors
from localcloud.rules.quota import Demand, Quota
from localcloud.tpu_state import transitions
from localcloud.tpu_state.backend import Backend
from localcloud.tpu_state.nodes.boot import NodeBoot
from localcloud.tpu_state.nodes.faults import NodeFaults
from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.registry import NodeRegistry
from localcloud.tpu_state.nodes.shutdown import NodeShutdown
from localcloud.tpu_state.operations import OperationRegistry
from localcloud.tpu_state.queued.provisioning import QueuedProvisioning
from localcloud.tpu_state.queued.registry import QueuedRegistry
from localcloud.tpu_state.queued.suspension import QueuedSuspension


class CloudState:
    """Nodes, queued resources and operations of one project, and what changes them.

    :param backend: settings, clock, randomness, faults and VMs.
    :ivar nodes: which nodes exist, in which states.
    :ivar boot: starts the VMs of nodes.
    :ivar shutdown: takes nodes away.
    :ivar queued: which queued resources exist, in which states.
    :ivar provisioning: gives queued resources their nodes.
    :ivar suspension: takes them away.
    :ivar operations: the long-running operations.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.operations = OperationRegistry(backend)
        self.nodes = NodeRegistry(backend)
        self.shutdown = NodeShutdown(self.nodes, self.operations)
        self.boot = NodeBoot(self.nodes, self.shutdown, self.operations)
        self.queued = QueuedRegistry(backend)
        self.provisioning = QueuedProvisioning(self.queued, self.nodes, self.boot, self.shutdown)
        self.suspension = QueuedSuspension(self.queued, self.nodes, self.shutdown)
        self._faults = NodeFaults(self.nodes, self.boot, self.shutdown)
        self._quota = Quota(backend.settings.quota, backend.settings.default_quota)

    def held(self) -> list[Demand]:
        """Return everything that holds quota: nodes of their own and queued resources, in any state."""
        own = [record.demand() for record in self.nodes.records.values() if not record.queued]
        return own + [record.demand() for record in self.queued.records.values()]

    def check_quota(self, wanted: Demand) -> None:
        """Let a demand pass that fits beside what is held.

        :raises CloudError: RESOURCE_EXHAUSTED.
        """
        self._quota.check(wanted, self.held())

    def node(self, name: str) -> NodeRecord:
        """Return a node by full name or by its id alone, for people at the command line.

        :raises CloudError: NOT_FOUND, or INVALID_ARGUMENT if several zones have a node of that id.
        """
        if "/" in name:
            return self.nodes.find(name)
        found = [record for record in self.nodes.records.values() if record.where.id == name]
        if not found:
            raise errors.not_found(f"nodes/{name}")
        if len(found) > 1:
            raise errors.invalid(f"Several nodes are called {name}: {', '.join(record.name for record in found)}")
        return found[0]

    def clear(self) -> None:
        """Remove every queued resource and node at once, without an operation."""
        self.queued.records.clear()
        for record in list(self.nodes.records.values()):
            self.shutdown.vanish(record)

    def snapshot(self) -> dict[str, Any]:
        """Return nodes and queued resources in short, for ``status``."""
        return {
            "nodes": [_node_row(record) for record in self.nodes.records.values()],
            "queued_resources": [
                {
                    "name": record.name,
                    "state": record.view().state.state.name,
                    "nodes": [n.where.id for n in record.nodes],
                }
                for record in self.queued.records.values()
            ],
        }


def state_name(record: NodeRecord) -> str:
    """Return the state of a node in words, or its number if the client knows no word for it."""
    return Node.State(record.state).name if record.state in transitions.NODE else str(record.state)


def _node_row(record: NodeRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "state": state_name(record),
        "health": record.health,
        "accelerator_type": record.kind.name,
        "tier": record.tier,
        "addresses": [machine.address for machine in record.machines],
        "labels": record.labels,
        "queued_resource": record.queued,
    }
