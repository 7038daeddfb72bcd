# SPDX-License-Identifier: Apache-2.0
"""One queued resource: the request, its state now, and how the API shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.cloud.tpu_v2.types import QueuedResource, QueuedResourceState

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.rules.names import ResourceName, check_id
from localcloud.rules.quota import Demand
from localcloud.tpu_state.backend import Backend
from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.requests import build
from localcloud.tpu_state.operations import Operation

State = QueuedResourceState.State
Initiator = QueuedResourceState.StateInitiator


@dataclass
class QueuedRecord:
    """One life of a queued resource.

    :ivar where: its name, taken apart.
    :ivar template: the request as asked for, without anything that changes.
    :ivar nodes: its nodes, prepared; they exist for others only from PROVISIONING on.
    :ivar state: ``QueuedResourceState.State``.
    :ivar shown_state: what the API shows instead, None for the state.
    :ivar initiator: the cause of the state: 1 the user, 2 the service.
    :ivar error: why it FAILED.
    :ivar delete: the pending delete operation.
    """

    where: ResourceName
    template: QueuedResource
    nodes: list[NodeRecord]
    state: int = State.CREATING
    shown_state: int | None = None
    initiator: int = Initiator.USER
    error: CloudError | None = None
    delete: Operation | None = None

    @property
    def name(self) -> str:
        """Full name."""
        return self.where.full

    def demand(self) -> Demand:
        """Return the quota it holds, in every state, until it is deleted."""
        first = self.nodes[0]
        return Demand(first.kind, first.tier != "on-demand", self.where.zone, len(self.nodes))

    def view(self) -> QueuedResource:
        """Return the request as the API shows it now."""
        shown = QueuedResource()
        raw = QueuedResource.pb(shown)
        raw.CopyFrom(QueuedResource.pb(self.template))
        raw.state.state = self.state if self.shown_state is None else self.shown_state
        raw.state.state_initiator = self.initiator
        if self.state == State.FAILED and self.error is not None:
            raw.state.failed_data.error.CopyFrom(self.error.status())
        return shown


def build_queued(backend: Backend, parent: ResourceName, identifier: str, asked: QueuedResource) -> QueuedRecord:
    """Check a queued resource as asked for and return its record, not yet in the registry.

    :raises CloudError: INVALID_ARGUMENT, or what else Google answers.
    """
    check_id(identifier, "queued_resource_id")
    specs = list(asked.tpu.node_spec)
    if len(specs) != 1:
        raise errors.invalid(f"Cloud TPU received a bad request. Exactly one node_spec is accepted, got {len(specs)}")
    where = ResourceName(parent.project, parent.zone, "queuedResources", identifier)
    template = QueuedResource(asked)
    template.name = where.full
    template.create_time = backend.stamp()
    QueuedResource.pb(template).ClearField("state")
    return QueuedRecord(where, template, _nodes(backend, parent, where.full, asked))


def _nodes(backend: Backend, parent: ResourceName, queued: str, asked: QueuedResource) -> list[NodeRecord]:
    spec = asked.tpu.node_spec[0]
    node_parent = backend.locate(spec.parent or parent.child("", "").removesuffix("//"))
    if node_parent.zone != parent.zone:
        raise errors.invalid(f"Cloud TPU received a bad request. The node_spec is in another location: {spec.parent}")
    wanted = type(spec.node)(spec.node)
    if "spot" in asked:
        wanted.scheduling_config.spot = True
    found = [build(backend, parent, node_id, wanted, queued) for node_id in _node_ids(spec, queued)]
    for node in found:
        node.template.multislice_node = len(found) > 1
    return found


def _node_ids(spec: Any, queued: str) -> list[str]:
    """Return the ids of the nodes of a spec: one, or several slices named by a prefix and a number."""
    if "multislice_params" not in spec:
        return [str(spec.node_id)]
    slices = spec.multislice_params
    if slices.node_count < 2:
        raise errors.invalid("Cloud TPU received a bad request. A multislice needs a node_count above 1")
    prefix = slices.node_id_prefix or queued.rpartition("/")[2]
    return [f"{prefix}-{index}" for index in range(slices.node_count)]
