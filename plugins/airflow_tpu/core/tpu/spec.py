# SPDX-License-Identifier: Apache-2.0
"""The request for a TPU, what the API reports of it, and what its state means for the run."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_tpu.core.tpu.resource_name import ResourceName, location, node_name

ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z0-9]+")


class Tier(enum.StrEnum):
    """How a TPU is bought: ``spot`` and ``preemptible`` may vanish at any moment, ``on-demand`` stays."""

    SPOT = "spot"
    PREEMPTIBLE = "preemptible"
    ON_DEMAND = "on-demand"

    @property
    def pool(self) -> Tier:
        """The quota pool it draws on: preemptible and spot share one (Google's spot page)."""
        return Tier.ON_DEMAND if self is Tier.ON_DEMAND else Tier.SPOT


class Phase(enum.Enum):
    """What a state of a node or a queued resource means for its run."""

    PENDING = "pending"
    USABLE = "usable"
    UNHEALTHY = "unhealthy"
    LOST = "lost"
    DELETING = "deleting"
    FAILED = "failed"
    UNKNOWN = "unknown"


# A preempted node keeps its name and quota until deleted and cannot be restarted. Listings do not always
# say PREEMPTED, see skypilot-org/skypilot issue 1468, hence the wide LOST. REPAIRING keeps the node.
_NODE_PHASES = {
    "CREATING": Phase.PENDING,
    "STARTING": Phase.PENDING,
    "RESTARTING": Phase.PENDING,
    "REIMAGING": Phase.PENDING,
    "UNHIDING": Phase.PENDING,
    "READY": Phase.USABLE,
    "REPAIRING": Phase.UNHEALTHY,
    "DELETING": Phase.DELETING,
    "STOPPING": Phase.LOST,
    "STOPPED": Phase.LOST,
    "PREEMPTED": Phase.LOST,
    "TERMINATED": Phase.LOST,
    "HIDING": Phase.LOST,
    "HIDDEN": Phase.LOST,
    "UNKNOWN": Phase.LOST,  # Google's own state of this name: a repair has failed
}

_QUEUED_PHASES = {
    "CREATING": Phase.PENDING,
    "ACCEPTED": Phase.PENDING,
    "WAITING_FOR_RESOURCES": Phase.PENDING,
    "PROVISIONING": Phase.PENDING,
    "ACTIVE": Phase.USABLE,
    "SUSPENDING": Phase.LOST,
    "SUSPENDED": Phase.LOST,  # never comes back by itself; holds quota until deleted
    "FAILED": Phase.FAILED,
    "DELETING": Phase.DELETING,
}

# Only a node that has been READY is started again, restarted, reimaged or taken out of hiding.
_AFTER_READY = frozenset({"STARTING", "RESTARTING", "REIMAGING", "UNHIDING"})

# The API leaves health unset for a while after READY; SSH then decides.
_HEALTHY = frozenset({"", "HEALTHY", "HEALTH_UNSPECIFIED"})
_SICK = frozenset({"TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE"})


def phase_of_node(state: str, health: str = "") -> Phase:
    """Meaning of a node's state; UNKNOWN for a state or health that is not listed here: poll again.

    :param state: name of ``Node.State``, or a bare number if the client has no name for it.
    :param health: name of ``Node.Health``.
    """
    phase = _NODE_PHASES.get(state, Phase.UNKNOWN)
    if phase is not Phase.USABLE or health in _HEALTHY:
        return phase
    return Phase.UNHEALTHY if health in _SICK else Phase.UNKNOWN


def phase_of_queued(state: str) -> Phase:
    """Meaning of a queued resource's state, UNKNOWN for one that is not listed here."""
    return _QUEUED_PHASES.get(state, Phase.UNKNOWN)


def region_of(zone: str) -> str:
    """Region of a zone: ``us-central1`` of ``us-central1-f``."""
    return zone.rpartition("-")[0]


QUEUED_RESOURCE, NODE = "queued-resource", "node"
"""Ways to ask for a TPU, as the form and the ledger write them."""


@dataclass(frozen=True)
class TPUSpec:
    """The request for a TPU.

    :param project_id: Google Cloud project id.
    :param zone: zone, such as ``us-central1-f``.
    :param accelerator_type: Google's name of type and size, such as ``v2-8``.
    :param runtime_version: software image of the VM.
    :param tier: how it is bought.
    :param queued: ask by queued resource; False creates the node directly.
    :param internal_ips: no external address on the workers.
    :param network: VPC network, empty for the default.
    :param subnetwork: subnetwork, empty for the default.
    :param service_account: e-mail of the VM's account, empty for the project's default.
    """

    project_id: str
    zone: str
    accelerator_type: str
    runtime_version: str
    tier: Tier
    queued: bool = True
    internal_ips: bool = False
    network: str = ""
    subnetwork: str = ""
    service_account: str = ""

    @property
    def parent(self) -> str:
        """Resource name of the zone, as every create call wants it."""
        return location(self.project_id, self.zone)

    def node(self, node_id: str) -> ResourceName:
        """Full name of the node that is asked for under this id."""
        return node_name(self.project_id, self.zone, node_id)

    @property
    def region(self) -> str:
        """Region of the zone."""
        return region_of(self.zone)


@dataclass(frozen=True)
class Endpoint:
    """Addresses of one worker; its index in the node's list is the worker id.

    :param internal: address inside the VPC.
    :param external: public address, empty if the worker has none.
    """

    internal: str
    external: str = ""


@dataclass(frozen=True)
class TPUView:
    """A node as the API shows it at one moment.

    :param name: full name.
    :param state: name of ``Node.State``.
    :param health: name of ``Node.Health``, empty while the API leaves it unset.
    :param created_at: aware instant, None if the API gave none.
    :param endpoints: one per worker; may be empty for a moment after READY.
    :param queued_resource: the queued resource that made it, None for a direct node.
    :param health_text: why it is not healthy, in Google's words; empty if it says nothing.
    """

    name: ResourceName
    state: str
    health: str = ""
    accelerator_type: str = ""
    tier: Tier = Tier.ON_DEMAND
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    endpoints: tuple[Endpoint, ...] = ()
    queued_resource: ResourceName | None = None
    health_text: str = ""

    @property
    def node_id(self) -> str:
        """Short name."""
        return self.name.id

    @property
    def zone(self) -> str:
        """Zone."""
        return self.name.zone

    @property
    def has_addresses(self) -> bool:
        """Whether every worker has an address to log in at."""
        return bool(self.endpoints) and all(worker.external or worker.internal for worker in self.endpoints)

    @property
    def phase(self) -> Phase:
        """Meaning of state and health."""
        return phase_of_node(self.state, self.health)

    @property
    def has_been_ready(self) -> bool:
        """Whether it is on its way back: it has been READY before, whether anybody has seen that or not."""
        return self.state in _AFTER_READY


@dataclass(frozen=True)
class QueuedView:
    """A queued resource as the API shows it at one moment.

    :param name: full name.
    :param state: name of ``QueuedResourceState.State``.
    :param error_code: google.rpc code of a FAILED request, 0 otherwise.
    :param error_message: its text.
    :param node_ids: ids of the nodes it asks for, of a multislice all of them.
    :param labels: labels of its node spec.
    :param initiator: ``USER`` or ``SERVICE``: whose act a suspension was, empty if not said.
    :param created_at: aware instant, None if the API gave none.
    :param valid_until: aware instant at which it expires unless it has got its nodes; None if the request has none.
    :param error_details: what the typed details of the error say beyond its text.
    """

    name: ResourceName
    state: str
    error_code: int = 0
    error_message: str = ""
    node_ids: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    accelerator_type: str = ""
    tier: Tier = Tier.ON_DEMAND
    initiator: str = ""
    created_at: datetime | None = None
    valid_until: datetime | None = None
    error_details: str = ""

    @property
    def queued_id(self) -> str:
        """Short name."""
        return self.name.id

    @property
    def zone(self) -> str:
        """Zone."""
        return self.name.zone

    @property
    def phase(self) -> Phase:
        """Meaning of the state."""
        return phase_of_queued(self.state)
