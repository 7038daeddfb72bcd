# SPDX-License-Identifier: Apache-2.0
"""One node: the request, its state now, and how the API shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from google.cloud.tpu_v2.types import AccessConfig, NetworkEndpoint, Node

from localcloud.rules.catalogue import AcceleratorType
from localcloud.rules.names import ResourceName
from localcloud.rules.quota import Demand
from localcloud.tpu_state.machines import Machine, Order

if TYPE_CHECKING:
    from localcloud.tpu_state.operations import Operation

# gRPC port of the retired TPU Node architecture; the API still shows it.
_PORT = 8470


@dataclass
class NodeRecord:
    """One life of a node.

    :ivar where: its name, taken apart.
    :ivar uid: the API's numeric ``id``; a node re-created under the same name has another.
    :ivar template: the node as asked for, with what the service fills in, without anything that changes.
    :ivar kind: its accelerator type.
    :ivar created: when CreateNode was accepted, or provisioning began.
    :ivar queued: full name of the queued resource it belongs to, or "".
    :ivar state: ``Node.State`` or a number the client does not know.
    :ivar health: ``Node.Health``.
    :ivar boots: how often its VMs were started; tells a late answer of an earlier boot from the present one.
    :ivar hides_addresses: the API shows no network endpoints although the VMs are there.
    :ivar create: the pending create operation.
    :ivar delete: the pending delete operation.
    """

    where: ResourceName
    uid: int
    template: Node
    kind: AcceleratorType
    created: datetime
    queued: str = ""
    state: int = Node.State.CREATING
    health: int = 0
    boots: int = 0
    machines: tuple[Machine, ...] = ()
    hides_addresses: bool = False
    create: Operation | None = None
    delete: Operation | None = None

    @property
    def name(self) -> str:
        """Full name."""
        return self.where.full

    @property
    def tier(self) -> str:
        """``spot``, ``preemptible`` or ``on-demand``."""
        config = self.template.scheduling_config
        if config.spot:
            return "spot"
        return "preemptible" if config.preemptible else "on-demand"

    @property
    def labels(self) -> dict[str, str]:
        """Labels as they are now."""
        return dict(self.template.labels)

    def demand(self) -> Demand:
        """Return the quota it holds."""
        return Demand(self.kind, self.tier != "on-demand", self.where.zone)

    def order(self) -> Order:
        """Return the VMs it needs."""
        return Order(self.name, self.uid, self.where.zone, self.kind.hosts, dict(self.template.metadata))

    def view(self) -> Node:
        """Return the node as the API shows it now."""
        shown = Node()
        raw = Node.pb(shown)
        raw.CopyFrom(Node.pb(self.template))
        raw.state = self.state
        raw.health = self.health
        machines = () if self.hides_addresses else self.machines
        shown.network_endpoints = [self._endpoint(machine) for machine in machines]
        return shown

    def _endpoint(self, machine: Machine) -> NetworkEndpoint:
        endpoint = NetworkEndpoint(ip_address=machine.address, port=_PORT)
        if self.has_external_ips():
            # One machine, one address: what is outside and what is inside cannot differ on a loopback.
            endpoint.access_config = AccessConfig(external_ip=machine.address)
        return endpoint

    def has_external_ips(self) -> bool:
        """Return whether external addresses were asked for; an API caller gets none by default."""
        template = self.template
        configs = list(template.network_configs) or [template.network_config]
        return any(config.enable_external_ips for config in configs)
