# SPDX-License-Identifier: Apache-2.0
"""Builds a node record from a create request, with every check that Google makes before it accepts the call."""

from __future__ import annotations

from google.cloud.tpu_v2.types import AcceleratorConfig, NetworkConfig, Node, ServiceAccount

from localcloud.rules import errors
from localcloud.rules.catalogue import AcceleratorType
from localcloud.rules.names import ResourceName, check_id, check_labels
from localcloud.tpu_state.backend import Backend
from localcloud.tpu_state.nodes.record import NodeRecord

_DESCRIPTION_MAX = 512
_OUTPUT_ONLY = (
    "state",
    "health",
    "health_description",
    "create_time",
    "network_endpoints",
    "id",
    "symptoms",
    "queued_resource",
    "multislice_node",
)


def build(backend: Backend, parent: ResourceName, node_id: str, asked: Node, queued: str = "") -> NodeRecord:
    """Check a node as asked for and return its record, in CREATING and not yet in the registry.

    :param parent: the location.
    :param queued: full name of the queued resource it will belong to.
    :raises CloudError: INVALID_ARGUMENT, or what else Google answers.
    """
    check_id(node_id, "node_id")
    check_labels(asked.labels)
    if len(asked.description) > _DESCRIPTION_MAX:
        raise errors.invalid(f"Cloud TPU received a bad request. The description is over {_DESCRIPTION_MAX} characters")
    if "network_config" in asked and asked.network_configs:
        raise errors.invalid(
            "Cloud TPU received a bad request. Only one of network_config and network_configs may be set"
        )
    kind = _kind(backend, parent.zone, asked)
    _check_runtime_version(backend, parent.zone, asked.runtime_version)
    where = ResourceName(parent.project, parent.zone, "nodes", node_id)
    uid = backend.rng.getrandbits(62)
    return NodeRecord(where, uid, _template(backend, where, asked, kind, uid, queued), kind, backend.now(), queued)


def _kind(backend: Backend, zone: str, asked: Node) -> AcceleratorType:
    config = asked.accelerator_config
    if asked.accelerator_type:
        kind = backend.catalogue.types.get(asked.accelerator_type)
    else:
        kind = backend.catalogue.by_topology(zone, _name(config.type_), config.topology)
    if kind is None or zone not in kind.zones:
        raise errors.bad_type(asked.accelerator_type or f"{config.type_!r} {config.topology}", zone)
    return kind


def _name(api_type: object) -> str:
    """Return the name of a generation in the API's list, empty for a number that it has not."""
    return api_type.name if isinstance(api_type, AcceleratorConfig.Type) else ""


def accelerator_config(kind: AcceleratorType) -> AcceleratorConfig:
    """Return a type as generation and topology; a generation that the API's list has not is unspecified."""
    return AcceleratorConfig(type_=kind.api_type or "TYPE_UNSPECIFIED", topology=kind.topology)


def _check_runtime_version(backend: Backend, zone: str, version: str) -> None:
    if not version:
        raise errors.invalid('Cloud TPU received a bad request. The field "runtime_version" is required')
    if version not in backend.catalogue.runtime_versions_in(zone):
        # The v2 text was never seen in public; this is the template attested for another kind of value.
        raise errors.value_not_found("RuntimeVersion", version, code=3)


def _template(backend: Backend, where: ResourceName, asked: Node, kind: AcceleratorType, uid: int, queued: str) -> Node:
    template = Node(asked)
    for field in _OUTPUT_ONLY:
        Node.pb(template).ClearField(field)
    template.name = where.full
    template.id = uid
    template.accelerator_type = kind.name
    template.accelerator_config = accelerator_config(kind)
    Node.pb(template).api_version = Node.ApiVersion.V2
    template.create_time = backend.stamp()
    template.queued_resource = queued
    if not template.network_configs:
        template.network_config = _network(where.project, asked)
    if not template.service_account.email:
        number = backend.settings.project_number
        template.service_account = ServiceAccount(email=f"{number}-compute@developer.gserviceaccount.com")
    return template


def _network(project: str, asked: Node) -> NetworkConfig:
    config = NetworkConfig(asked.network_config)
    config.network = config.network or f"projects/{project}/global/networks/default"
    return config
