# SPDX-License-Identifier: Apache-2.0
"""UpdateNode and GetGuestAttributes: change a running node, and read what its VMs publish about themselves."""

from __future__ import annotations

from functools import partial
from typing import Any

from google.cloud.tpu_v2.types import (
    GetGuestAttributesRequest,
    GetGuestAttributesResponse,
    GuestAttributes,
    GuestAttributesEntry,
    GuestAttributesValue,
    Node,
    UpdateNodeRequest,
)

from localcloud.rules import errors
from localcloud.rules.names import check_labels
from localcloud.tpu_state.cloud_state import CloudState
from localcloud.tpu_state.machines import Machine
from localcloud.tpu_state.nodes.record import NodeRecord

_UPDATABLE = frozenset({"description", "tags", "labels", "metadata", "network_config.enable_external_ips"})


class NodeChangeMethods:
    """UpdateNode and GetGuestAttributes.

    :param state: the nodes.
    """

    def __init__(self, state: CloudState) -> None:
        self._nodes = state.nodes
        self._operations = state.operations
        self._backend = state.backend

    def update(self, request: UpdateNodeRequest) -> Any:
        """UpdateNode: replaces each field the mask names as a whole, maps included."""
        record = self._nodes.find(request.node.name)
        paths = list(request.update_mask.paths)
        unknown = sorted(set(paths) - _UPDATABLE)
        if unknown or not paths:
            raise errors.invalid(
                f"Cloud TPU received a bad request. The update mask may name {', '.join(sorted(_UPDATABLE))}, "
                f"got {', '.join(unknown) or 'nothing'}"
            )
        check_labels(request.node.labels)
        operation = self._operations.start(record.where, "update")
        if not operation.holds_resource:
            self._apply(record, request.node, paths)
        finish = partial(self._operations.succeed, operation, Node.pb(record.view()))
        self._backend.later(self._backend.latencies.changing, finish)
        return operation.render()

    def _apply(self, record: NodeRecord, asked: Node, paths: list[str]) -> None:
        for path in paths:
            if path == "network_config.enable_external_ips":
                record.template.network_config.enable_external_ips = asked.network_config.enable_external_ips
            else:
                setattr(record.template, path, getattr(asked, path))
        if "metadata" in paths:
            self._backend.machines.set_metadata(record.name, dict(record.template.metadata))

    def guest_attributes(self, request: GetGuestAttributesRequest) -> GetGuestAttributesResponse:
        """GetGuestAttributes: host key and host name per worker; absent until the guest has booted."""
        record = self._nodes.find(request.name)
        settings = self._backend.settings
        settings.project.admit_guest_attributes(settings.project_number)
        wanted = list(request.worker_ids) or [str(index) for index in range(record.kind.hosts)]
        answers = [self._of_worker(record, worker, request.query_path) for worker in wanted]
        return GetGuestAttributesResponse(guest_attributes=answers)

    def _of_worker(self, record: NodeRecord, worker: str, query: str) -> GuestAttributes:
        if not worker.isdigit() or int(worker) >= record.kind.hosts:
            raise errors.invalid(f'Cloud TPU received a bad request. The worker id "{worker}" is not one of the node')
        if int(worker) >= len(record.machines):
            raise errors.value_not_found("GuestAttributes", query)
        entries = [entry for entry in _entries(record.machines[int(worker)]) if _matches(entry, query)]
        if not entries:
            raise errors.value_not_found("GuestAttributes", query)
        return GuestAttributes(query_path=query, query_value=GuestAttributesValue(items=entries))


def _entries(machine: Machine) -> list[GuestAttributesEntry]:
    """Return what the guest publishes; the key is written without its type, as Google's guest agent does."""
    kind, _, key = machine.host_key.partition(" ")
    return [
        GuestAttributesEntry(namespace="hostkeys", key=kind, value=key.split(" ")[0]),
        GuestAttributesEntry(namespace="tpu", key="hostname", value=machine.hostname),
    ]


def _matches(entry: GuestAttributesEntry, query: str) -> bool:
    namespace, _, key = query.partition("/")
    return (not namespace or namespace == entry.namespace) and (not key or key == entry.key)
