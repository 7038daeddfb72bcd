# SPDX-License-Identifier: Apache-2.0
"""The Cloud TPU API without a wire: every method as a plain function from request to answer.

There is no socket and no waiting in here; :mod:`localcloud.tpu_api.grpc_server` and
:mod:`localcloud.tpu_api.rest_server` put it behind one, a test may call it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localcloud.tpu_api.catalogue_methods import CatalogueMethods
from localcloud.tpu_api.node_changes import NodeChangeMethods
from localcloud.tpu_api.node_methods import NodeMethods
from localcloud.tpu_api.operation_methods import OperationMethods
from localcloud.tpu_api.queued_methods import QueuedResourceMethods
from localcloud.tpu_api.stale_lists import StaleLists
from localcloud.tpu_state.cloud_state import CloudState

Method = Callable[[Any], Any]


class TpuService:
    """All methods of the Tpu, Operations and Locations services.

    :param state: nodes, queued resources, operations.
    :ivar methods: by ``Service/Method``, for example ``Tpu/CreateNode``; each takes the request message, returns the
        answer message and raises :class:`localcloud.rules.errors.CloudError`.
    """

    def __init__(self, state: CloudState) -> None:
        self.state = state
        methods = {**_node_methods(state), **_queued_methods(state), **_operation_methods(state), **_catalogue(state)}
        self.methods: Mapping[str, Method] = StaleLists(state.nodes, state.queued).over(methods)


def _node_methods(state: CloudState) -> dict[str, Method]:
    nodes, changes = NodeMethods(state), NodeChangeMethods(state)
    return {
        "Tpu/CreateNode": nodes.create,
        "Tpu/GetNode": nodes.get,
        "Tpu/ListNodes": nodes.list,
        "Tpu/DeleteNode": nodes.delete,
        "Tpu/StartNode": nodes.start,
        "Tpu/StopNode": nodes.stop,
        "Tpu/UpdateNode": changes.update,
        "Tpu/GetGuestAttributes": changes.guest_attributes,
    }


def _queued_methods(state: CloudState) -> dict[str, Method]:
    queued = QueuedResourceMethods(state)
    return {
        "Tpu/CreateQueuedResource": queued.create,
        "Tpu/GetQueuedResource": queued.get,
        "Tpu/ListQueuedResources": queued.list,
        "Tpu/DeleteQueuedResource": queued.delete,
        "Tpu/ResetQueuedResource": queued.reset,
    }


def _operation_methods(state: CloudState) -> dict[str, Method]:
    operations = OperationMethods(state.backend, state.operations)
    return {
        "Operations/GetOperation": operations.get,
        "Operations/ListOperations": operations.list,
        "Operations/CancelOperation": operations.cancel,
        "Operations/DeleteOperation": operations.delete,
    }


def _catalogue(state: CloudState) -> dict[str, Method]:
    catalogue = CatalogueMethods(state.backend)
    return {
        "Tpu/GetAcceleratorType": catalogue.get_type,
        "Tpu/ListAcceleratorTypes": catalogue.list_types,
        "Tpu/GetRuntimeVersion": catalogue.get_version,
        "Tpu/ListRuntimeVersions": catalogue.list_versions,
        "Tpu/GenerateServiceIdentity": catalogue.identity,
        "Locations/ListLocations": catalogue.list_locations,
        "Locations/GetLocation": catalogue.get_location,
    }
