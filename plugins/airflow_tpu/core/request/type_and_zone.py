"""Whether the type and zone of a form exist and go together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue, nearest
from airflow_tpu.core.request.fields import Invalid, choice
from airflow_tpu.errors import ConfigError, Fault


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
