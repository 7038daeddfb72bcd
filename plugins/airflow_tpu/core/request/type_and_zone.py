# SPDX-License-Identifier: Apache-2.0
"""Whether type, zone, network and account of a form can be, and go together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue, nearest
from airflow_tpu.core.request.fields import Invalid, choice, text
from airflow_tpu.core.tpu.spec import region_of
from airflow_tpu.errors import ConfigError, Fault

# RFC 1035, as Compute Engine names its resources; a project may carry its organisation's domain.
_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT = r"projects/([a-z0-9.-]+:)?[a-z0-9-]+"
_NETWORK = re.compile(rf"({_PROJECT}/global/networks/)?{_NAME}")
_SUBNETWORK = re.compile(rf"({_PROJECT}/regions/(?P<region>[a-z0-9-]+)/subnetworks/)?{_NAME}")
_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]*@([a-z0-9-]+\.)*gserviceaccount\.com")
_URL = "https://www.googleapis.com/compute/v1/"


def accelerator_type(value: Any, catalogue: Catalogue) -> str:
    """Read the name of a type of the catalogue, pod slices included: :func:`type_faults` says what is not driven.

    :raises Invalid: there is none of that name; the nearest one is named.
    """
    singles = catalogue.single_host_types()
    if not isinstance(value, str):
        return choice(singles)(value)
    if value in catalogue.types:
        return value
    raise Invalid("is empty" if value == "" else "is no accelerator type", singles, _nearest(value, singles, catalogue))


def type_faults(kind: AcceleratorType, catalogue: Catalogue) -> list[Fault]:
    """A fault if the type is not of one worker VM, or the Cloud TPU API does not serve it."""
    singles = catalogue.single_host_types()
    if not kind.supported:
        problem = "is not served by the Cloud TPU API, only by Compute Engine and GKE"
        return [Fault("accelerator_type", kind.name, problem, singles)]
    if kind.hosts == 1:
        return []
    largest = [name for name in singles if catalogue.types[name].generation == kind.generation][-1:]
    problem = f"is a pod slice of {kind.hosts} workers; this version drives types of one worker only"
    return [Fault("accelerator_type", kind.name, problem, singles, "".join(largest) or None)]


def zone_faults(kind: AcceleratorType, zone: str | None, catalogue: Catalogue) -> list[Fault]:
    """A fault if the (otherwise valid) zone does not offer the type."""
    offered = catalogue.zones_of(kind.name)
    if zone is None or zone in offered:
        return []
    return [Fault("zone", zone, f"does not offer {kind.name}", offered, nearest(zone, offered))]


def known_type(value: str, catalogue: Catalogue) -> AcceleratorType:
    """Return a type of the catalogue, pod slices included.

    :raises ConfigError: there is none of that name; the nearest one is named.
    """
    kind = catalogue.types.get(value)
    if kind is not None:
        return kind
    fault = Fault("accelerator_type", value, "is no accelerator type", (), _nearest(value, catalogue.types, catalogue))
    raise ConfigError([fault])


def _nearest(value: str, names: Iterable[str], catalogue: Catalogue) -> str | None:
    return nearest(catalogue.generations.respelled(value.strip().lower()[:100]), names)


def network(value: Any) -> str:
    """Read the name of a VPC network.

    :raises Invalid: it is none.
    """
    return _read(value, _NETWORK, "is no name of a VPC network", ("NAME", "projects/PROJECT/global/networks/NAME"))


def subnetwork(value: Any) -> str:
    """Read the name of a subnetwork.

    :raises Invalid: it is none.
    """
    full = "projects/PROJECT/regions/REGION/subnetworks/NAME"
    return _read(value, _SUBNETWORK, "is no name of a subnetwork", ("NAME", full))


def service_account(value: Any) -> str:
    """Read the e-mail of a service account.

    :raises Invalid: it is none; a person's address is none.
    """
    return _read(value, _ACCOUNT, "is no e-mail of a service account", ("NAME@PROJECT.iam.gserviceaccount.com",))


def subnetwork_faults(name: str | None, zone: str | None) -> list[Fault]:
    """A fault if a subnetwork is of another region than the zone."""
    found = _SUBNETWORK.fullmatch(name or "")
    region = found["region"] if found else None
    if region is None or zone is None or region == region_of(zone):
        return []
    problem = f"is in {region}; a TPU VM in {zone} needs one of {region_of(zone)}"
    return [Fault("subnetwork", name, problem, (), str(name).replace(region, region_of(zone)))]


def _read(value: Any, pattern: re.Pattern[str], problem: str, allowed: tuple[str, ...]) -> str:
    found = text(300)(value).strip()
    bare = found.removeprefix(_URL)
    if pattern.fullmatch(bare):
        return bare
    near = bare.lower() if pattern.fullmatch(bare.lower()) else None
    raise Invalid(problem, allowed, near)
