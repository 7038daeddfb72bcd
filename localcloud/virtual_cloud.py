# SPDX-License-Identifier: Apache-2.0
"""A virtual cloud: the state machine in virtual time, without sockets, processes or waiting.

Hours of preemptions take milliseconds here, and the same seed gives the same history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from localcloud.clock import ManualClock
from localcloud.faults import FaultRegistry
from localcloud.rules.catalogue import Catalogue
from localcloud.rules.settings import Settings
from localcloud.timeline import Timeline, advance
from localcloud.tpu_api.service import TpuService
from localcloud.tpu_state.backend import Backend, seeded_random
from localcloud.tpu_state.cloud_state import CloudState
from localcloud.tpu_state.machines import SimulatedMachines
from localcloud.tpu_state.meter import Meter

ZONE = "europe-west4-b"
PARENT = f"projects/local-project/locations/{ZONE}"


def spot_node(**changes: Any) -> tpu_v2.Node:
    """Return an ordinary spot node as a caller asks for it."""
    wanted: dict[str, Any] = {
        "accelerator_type": "v5litepod-8",
        "runtime_version": "v2-alpha-tpuv5-lite",
        "scheduling_config": {"spot": True},
    }
    return tpu_v2.Node({**wanted, **changes})


def queued_resource(node_id: str = "node-1", **changes: Any) -> tpu_v2.QueuedResource:
    """Return an ordinary request for one spot node."""
    spec = {"parent": PARENT, "node_id": node_id, "node": spot_node()}
    return tpu_v2.QueuedResource({"tpu": {"node_spec": [spec]}, "spot": {}, **changes})


@dataclass
class VirtualCloud:
    """The state machine with simulated VMs and a clock that a test moves."""

    service: TpuService
    clock: ManualClock
    faults: FaultRegistry
    machines: SimulatedMachines
    meter: Meter

    @property
    def state(self) -> CloudState:
        """Nodes, queued resources, operations."""
        return self.service.state

    def pass_time(self, seconds: float) -> None:
        """Play ``seconds`` of virtual time."""
        advance(self.state.backend.timeline, self.clock, seconds)

    def call(self, method: str, request: Any) -> Any:
        """Call one method of the API."""
        return self.service.methods[method](request)

    def create(self, node_id: str = "node-1", **changes: Any) -> Any:
        """Ask for a node and return the operation."""
        node = spot_node(**changes)
        return self.call("Tpu/CreateNode", tpu_v2.CreateNodeRequest(parent=PARENT, node_id=node_id, node=node))

    def node(self, node_id: str = "node-1") -> Any:
        """Return a node as the API shows it."""
        return self.call("Tpu/GetNode", tpu_v2.GetNodeRequest(name=f"{PARENT}/nodes/{node_id}"))

    def enqueue(self, identifier: str = "request-1", request_id: str = "", **changes: Any) -> Any:
        """Ask for a queued resource and return the operation."""
        request = tpu_v2.CreateQueuedResourceRequest(
            parent=PARENT,
            queued_resource_id=identifier,
            queued_resource=queued_resource(**changes),
            request_id=request_id,
        )
        return self.call("Tpu/CreateQueuedResource", request)

    def queued(self, identifier: str = "request-1") -> Any:
        """Return a queued resource as the API shows it."""
        request = tpu_v2.GetQueuedResourceRequest(name=f"{PARENT}/queuedResources/{identifier}")
        return self.call("Tpu/GetQueuedResource", request)

    def operation(self, name: str) -> Any:
        """Return an operation as the API shows it."""
        return self.call("Operations/GetOperation", operations_pb2.GetOperationRequest(name=name))


def make_virtual_cloud(seed: int = 1, **settings: Any) -> VirtualCloud:
    """Return a virtual cloud with these settings."""
    clock, faults, machines = ManualClock(), FaultRegistry(), SimulatedMachines()
    backend = Backend(Settings(**settings), Catalogue.load(), Timeline(clock), seeded_random(seed), faults, machines)
    cloud = VirtualCloud(TpuService(CloudState(backend)), clock, faults, machines, Meter(clock))
    cloud.state.nodes.listeners.append(cloud.meter.observe)
    return cloud


def fault(point: str, match: Mapping[str, str] | None = None, **params: Any) -> dict[str, Any]:
    """Return the JSON form of a fault that strikes once."""
    return {"point": point, "match": dict(match or {}), "params": params}
