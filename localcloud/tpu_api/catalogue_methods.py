# SPDX-License-Identifier: Apache-2.0
"""What a project can ask about before it creates anything: locations, accelerator types, runtime versions, identity."""

from __future__ import annotations

from typing import Any

from google.cloud.location import locations_pb2
from google.cloud.tpu_v2.types import (
    AcceleratorType,
    GenerateServiceIdentityRequest,
    GenerateServiceIdentityResponse,
    GetAcceleratorTypeRequest,
    GetRuntimeVersionRequest,
    ListAcceleratorTypesRequest,
    ListAcceleratorTypesResponse,
    ListRuntimeVersionsRequest,
    ListRuntimeVersionsResponse,
    RuntimeVersion,
    ServiceIdentity,
)

from localcloud.rules import catalogue, errors
from localcloud.rules.names import ResourceName
from localcloud.rules.paging import page
from localcloud.tpu_state.backend import Backend
from localcloud.tpu_state.nodes.requests import accelerator_config


class CatalogueMethods:
    """The read-only methods of the TPU and Locations services.

    :param backend: the catalogue and the project.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def list_types(self, request: ListAcceleratorTypesRequest) -> ListAcceleratorTypesResponse:
        """ListAcceleratorTypes of one zone."""
        where = self._backend.locate(request.parent)
        zones, silent = self._backend.answering_zones(where.zone, "ListAcceleratorTypes")
        kinds = self._backend.catalogue.types_in(where.zone) if zones else []
        chosen, token = page(kinds, lambda kind: kind.name, request.page_size, request.page_token)
        return ListAcceleratorTypesResponse(
            accelerator_types=[_type(where, kind) for kind in chosen], next_page_token=token, unreachable=silent
        )

    def get_type(self, request: GetAcceleratorTypeRequest) -> AcceleratorType:
        """GetAcceleratorType."""
        where = self._backend.locate(request.name, "acceleratorTypes")
        for kind in self._backend.catalogue.types_in(where.zone):
            if kind.name == where.id:
                return _type(where, kind)
        raise errors.not_found(request.name)

    def list_versions(self, request: ListRuntimeVersionsRequest) -> ListRuntimeVersionsResponse:
        """ListRuntimeVersions of one zone."""
        where = self._backend.locate(request.parent)
        zones, silent = self._backend.answering_zones(where.zone, "ListRuntimeVersions")
        names = self._backend.catalogue.runtime_versions_in(where.zone) if zones else []
        chosen, token = page(names, str, request.page_size, request.page_token)
        versions = [_version(where, name) for name in chosen]
        return ListRuntimeVersionsResponse(runtime_versions=versions, next_page_token=token, unreachable=silent)

    def get_version(self, request: GetRuntimeVersionRequest) -> RuntimeVersion:
        """GetRuntimeVersion."""
        where = self._backend.locate(request.name, "runtimeVersions")
        if where.id not in self._backend.catalogue.runtime_versions_in(where.zone):
            raise errors.not_found(request.name)
        return _version(where, where.id)

    def identity(self, request: GenerateServiceIdentityRequest) -> GenerateServiceIdentityResponse:
        """GenerateServiceIdentity."""
        self._backend.locate(request.parent)
        email = f"service-{self._backend.settings.project_number}@cloud-tpu.iam.gserviceaccount.com"
        return GenerateServiceIdentityResponse(identity=ServiceIdentity(email=email))

    def list_locations(self, request: Any) -> Any:
        """ListLocations of the project."""
        project = request.name.removesuffix("/locations").removeprefix("projects/")
        if project not in {self._backend.settings.project_id, self._backend.settings.project_number}:
            raise errors.project_denied(project)
        chosen, token = page(self._backend.open_zones(), str, request.page_size, request.page_token)
        return locations_pb2.ListLocationsResponse(
            locations=[self._location(zone) for zone in chosen], next_page_token=token
        )

    def get_location(self, request: Any) -> Any:
        """GetLocation."""
        return self._location(self._backend.locate(request.name).zone)

    def _location(self, zone: str) -> Any:
        name = f"projects/{self._backend.settings.project_id}/locations/{zone}"
        return locations_pb2.Location(name=name, location_id=zone)


def _type(where: ResourceName, kind: catalogue.AcceleratorType) -> AcceleratorType:
    name = where.child("acceleratorTypes", kind.name)
    return AcceleratorType(name=name, type_=kind.name, accelerator_configs=[accelerator_config(kind)])


def _version(where: ResourceName, name: str) -> RuntimeVersion:
    return RuntimeVersion(name=where.child("runtimeVersions", name), version=name)
