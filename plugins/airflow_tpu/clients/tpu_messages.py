# SPDX-License-Identifier: Apache-2.0
"""Between our dataclasses and the messages of ``google.cloud.tpu_v2``; pure, so that tables can test it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.tpu_retry import details_in_words
from airflow_tpu.core.tpu.api_errors import classify
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.core.tpu.spec import Endpoint, QueuedView, Tier, TPUSpec, TPUView

if TYPE_CHECKING:
    from google.cloud import tpu_v2

    from airflow_tpu.errors import TPUError

# Names of google.rpc codes are not in the client; a failed queued resource carries the bare number.
_DESCRIPTION = "Made by airflow-tpu for an Airflow DAG run; deleted when the run ends."


@dataclass(frozen=True)
class Stamp:
    """What marks a TPU as ours.

    :param node_id: derived name of this incarnation.
    :param labels: run, attempt token, expiry.
    :param ssh_keys: lines ``USER:KEYTYPE BASE64`` for the node's metadata.
    :param request_id: makes a repeated queued-resource create the same create.
    :param startup_script: what each worker runs as root when it boots, empty for nothing.
    :param valid_until: aware instant after which a request that waits in the queue gets no TPU any more; None: never.
    """

    node_id: str
    labels: dict[str, str]
    ssh_keys: str
    request_id: str
    startup_script: str = ""
    valid_until: dt.datetime | None = None


@dataclass(frozen=True)
class OperationView:
    """A long-running operation.

    :param started_at: when Google accepted the request.
    :param ended_at: when it was done; for a direct node's create this is when it became READY.
    :param error: our error when it failed.
    """

    name: str
    done: bool
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    error: TPUError | None = None


def to_node(spec: TPUSpec, stamp: Stamp) -> tpu_v2.Node:
    """Build the node message: key in the create request (no later patch can race), OS Login off for it."""
    from google.cloud import tpu_v2

    node = tpu_v2.Node(
        description=_DESCRIPTION,
        accelerator_type=spec.accelerator_type,
        runtime_version=spec.runtime_version,
        labels=stamp.labels,
        # OS Login, where a project switches it on, makes the guest ignore metadata keys.
        metadata={"ssh-keys": stamp.ssh_keys, "enable-oslogin": "FALSE", **_startup(stamp)},
        network_config=tpu_v2.NetworkConfig(
            network=spec.network, subnetwork=spec.subnetwork, enable_external_ips=not spec.internal_ips
        ),
    )
    if spec.service_account:
        node.service_account = tpu_v2.ServiceAccount(
            email=spec.service_account, scope=["https://www.googleapis.com/auth/cloud-platform"]
        )
    if not spec.queued or spec.tier is Tier.PREEMPTIBLE:
        node.scheduling_config = tpu_v2.SchedulingConfig(
            spot=spec.tier is Tier.SPOT, preemptible=spec.tier is Tier.PREEMPTIBLE
        )
    return node


def _startup(stamp: Stamp) -> dict[str, str]:
    return {"startup-script": stamp.startup_script} if stamp.startup_script else {}


def to_create_node(spec: TPUSpec, stamp: Stamp) -> tpu_v2.CreateNodeRequest:
    """Request for a direct node."""
    from google.cloud import tpu_v2

    return tpu_v2.CreateNodeRequest(parent=spec.parent, node_id=stamp.node_id, node=to_node(spec, stamp))


def to_create_queued(spec: TPUSpec, stamp: Stamp) -> tpu_v2.CreateQueuedResourceRequest:
    """Request for a queued resource of one node; both carry the same id.

    The request expires by itself: Google may grant it days later, when Airflow is long gone.
    """
    from google.cloud import tpu_v2

    node_spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=spec.parent, node_id=stamp.node_id, node=to_node(spec, stamp))
    queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[node_spec]))
    if spec.tier is Tier.SPOT:
        queued.spot = tpu_v2.QueuedResource.Spot()
    if stamp.valid_until is not None:
        queued.queueing_policy = tpu_v2.QueuedResource.QueueingPolicy(valid_until_time=stamp.valid_until)
    return tpu_v2.CreateQueuedResourceRequest(
        parent=spec.parent, queued_resource_id=stamp.node_id, queued_resource=queued, request_id=stamp.request_id
    )


def to_view(node: tpu_v2.Node) -> TPUView:
    """A node as our code sees it."""
    return TPUView(
        name=ResourceName.parse(node.name),
        state=_enum_name(node.state),
        health=_enum_name(node.health),
        health_text=node.health_description.strip(),
        accelerator_type=_type_of(node),
        tier=_tier(node.scheduling_config),
        labels=dict(node.labels),
        created_at=to_instant(node.create_time),
        endpoints=tuple(
            Endpoint(internal=endpoint.ip_address, external=endpoint.access_config.external_ip)
            for endpoint in node.network_endpoints
        ),
        queued_resource=ResourceName.parse(node.queued_resource) if node.queued_resource else None,
    )


def to_queued_view(queued: tpu_v2.QueuedResource) -> QueuedView:
    """A queued resource as our code sees it."""
    name, specs = ResourceName.parse(queued.name), list(queued.tpu.node_spec)
    error = queued.state.failed_data.error
    first = specs[0].node if specs else None
    return QueuedView(
        name=name,
        state=_enum_name(queued.state.state),
        error_details=details_in_words(error.details),
        error_code=error.code,
        error_message=error.message,
        node_ids=tuple(node_id for spec in specs for node_id in _node_ids(spec, name.id)),
        labels=dict(first.labels) if first else {},
        # Nodes of several types are no type of the catalogue, so their chips count as unknown, not as those of one.
        accelerator_type=" + ".join(dict.fromkeys(_type_of(spec.node) for spec in specs)),
        tier=Tier.SPOT if "spot" in queued else _tier(first.scheduling_config if first else None),
        initiator=_enum_name(queued.state.state_initiator),
        created_at=to_instant(queued.create_time),
        valid_until=to_instant(queued.queueing_policy.valid_until_time),
    )


def _type_of(node: tpu_v2.Node) -> str:
    """Return the type of a node, as generation and topology if it was asked for so."""
    config = node.accelerator_config
    return node.accelerator_type or (f"{_enum_name(config.type_)} {config.topology}" if config.topology else "")


def _node_ids(spec: tpu_v2.QueuedResource.Tpu.NodeSpec, queued_id: str) -> list[str]:
    """Return the id of each node that a spec asks for: one, or those of a multislice, as Google numbers them."""
    slices = spec.multislice_params
    prefix = slices.node_id_prefix or queued_id
    return [f"{prefix}-{number}" for number in range(slices.node_count)] or [spec.node_id]


def to_operation_view(operation: Any) -> OperationView:
    """A long-running operation as our code sees it."""
    from google.cloud import tpu_v2

    metadata = tpu_v2.OperationMetadata()
    if operation.metadata.type_url.endswith("OperationMetadata"):
        metadata = tpu_v2.OperationMetadata.deserialize(operation.metadata.value)
    error = None
    if operation.done and operation.error.code:
        subject, details = metadata.target or operation.name, details_in_words(operation.error.details)
        created = metadata.verb == "create"
        error = classify(operation.error.code, operation.error.message, "", subject, details, ended=created)
    return OperationView(
        name=operation.name,
        done=operation.done,
        started_at=to_instant(metadata.create_time),
        ended_at=to_instant(metadata.end_time),
        error=error,
    )


def to_host_keys(attributes: tpu_v2.GetGuestAttributesResponse) -> dict[int, str]:
    """SSH host key of each worker that publishes one, by the number of the worker."""
    keys = {}
    for worker, published in enumerate(attributes.guest_attributes):
        for item in published.query_value.items:
            if item.key == "ssh-ed25519":
                keys[worker] = f"ssh-ed25519 {item.value.removeprefix('ssh-ed25519').strip()}"
    return keys


def to_instant(value: Any) -> dt.datetime | None:
    """A protobuf timestamp as an aware datetime; None when unset."""
    if not value or not value.timestamp():
        return None
    return dt.datetime.fromtimestamp(value.timestamp(), tz=dt.UTC)


def _tier(scheduling: tpu_v2.SchedulingConfig | None) -> Tier:
    if scheduling is not None and scheduling.spot:
        return Tier.SPOT
    if scheduling is not None and scheduling.preemptible:
        return Tier.PREEMPTIBLE
    return Tier.ON_DEMAND


def _enum_name(value: Any) -> str:
    """Name of an enum; a number this client does not know stays a number (it must never crash us)."""
    return getattr(value, "name", None) or str(value)
