"""The cloud's truth in one object: every method of its API as a plain function from request to answer.

There is no socket and no waiting in here; :mod:`localcloud.tpu_api.grpc_server` puts it behind gRPC, a test may call
it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.cloud.tpu_v2.types import Node

from localcloud.rules import errors
from localcloud.rules.quota import Demand, Quota
from localcloud.tpu_api.catalogue_methods import Offers
from localcloud.tpu_api.node_changes import NodeChange
from localcloud.tpu_api.node_methods import NodeApi
from localcloud.tpu_api.queued_methods import QueuedApi
from localcloud.tpu_state import transitions
from localcloud.tpu_state.backend import World
from localcloud.tpu_state.node_faults import Fate
from localcloud.tpu_state.node_record import NodeRecord
from localcloud.tpu_state.nodes import NodeBook
from localcloud.tpu_state.operations import OperationBook
from localcloud.tpu_state.queued import QueuedBook
from localcloud.tpu_state.stale_lists import Lag

Method = Callable[[Any], Any]


class CloudState:
    """Nodes, queued resources and operations of one project.

    :param world: settings, time, chance, faults and VMs.
    :ivar methods: by ``Service/Method``, for example ``Tpu/CreateNode``; each takes the request message, returns the
        answer message and raises :class:`localcloud.rules.errors.CloudError`.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.operations = OperationBook(world)
        self.nodes = NodeBook(world, self.operations)
        self.queued = QueuedBook(self.nodes)
        self.fate = Fate(self.nodes)
        quota = Quota(world.settings.quota, world.settings.default_quota)
        self._node_api = NodeApi(self.nodes, quota, self.held)
        self._queued_api = QueuedApi(self.queued, quota, self.held)
        self.methods: Mapping[str, Method] = Lag(self.nodes, self.queued).over({**self._tpu(), **self._shared()})

    def _tpu(self) -> dict[str, Method]:
        nodes, queued, change, offers = self._node_api, self._queued_api, NodeChange(self.nodes), Offers(self.world)
        return {
            "Tpu/CreateNode": nodes.create,
            "Tpu/GetNode": nodes.get,
            "Tpu/ListNodes": nodes.list,
            "Tpu/DeleteNode": nodes.delete,
            "Tpu/StartNode": nodes.start,
            "Tpu/StopNode": nodes.stop,
            "Tpu/UpdateNode": change.update,
            "Tpu/GetGuestAttributes": change.guest_attributes,
            "Tpu/CreateQueuedResource": queued.create,
            "Tpu/GetQueuedResource": queued.get,
            "Tpu/ListQueuedResources": queued.list,
            "Tpu/DeleteQueuedResource": queued.delete,
            "Tpu/ResetQueuedResource": queued.reset,
            "Tpu/GetAcceleratorType": offers.get_type,
            "Tpu/ListAcceleratorTypes": offers.list_types,
            "Tpu/GetRuntimeVersion": offers.get_version,
            "Tpu/ListRuntimeVersions": offers.list_versions,
            "Tpu/GenerateServiceIdentity": offers.identity,
        }

    def _shared(self) -> dict[str, Method]:
        operations, offers = self.operations, Offers(self.world)
        return {
            "Operations/GetOperation": operations.get,
            "Operations/ListOperations": operations.list,
            "Operations/CancelOperation": operations.cancel,
            "Operations/DeleteOperation": operations.delete,
            "Locations/ListLocations": offers.list_locations,
            "Locations/GetLocation": offers.get_location,
        }

    def held(self) -> list[Demand]:
        """Return everything that holds quota: nodes of their own and queued resources, dead or alive."""
        own = [record.demand() for record in self.nodes.records.values() if not record.queued]
        return own + [record.demand() for record in self.queued.records.values()]

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
            self.nodes.vanish(record)

    def state_name(self, record: NodeRecord) -> str:
        """Return the state of a node in words, or its number if the client knows no word for it."""
        return str(_node_row(record)["state"])

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


def _node_row(record: NodeRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "state": Node.State(record.state).name if record.state in transitions.NODE else str(record.state),
        "health": record.health,
        "accelerator_type": record.kind.name,
        "tier": record.tier,
        "addresses": [machine.address for machine in record.machines],
        "labels": record.labels,
        "queued_resource": record.queued,
    }
