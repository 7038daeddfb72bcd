"""Whether the type and zone of a form exist and go together."""

from __future__ import annotations

import re
from typing import Any

from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue, nearest
from airflow_tpu.core.request.fields import Invalid, choice
from airflow_tpu.errors import ConfigError, Fault

_MARKETING_NAME = re.compile(r"v5(e|lite)(?=-)")


def accelerator(value: Any, catalogue: Catalogue) -> str:
    """A type of one worker VM that the Cloud TPU API serves.

    :raises Invalid: for an unknown type, a pod slice, or a type of Compute Engine only.
    """
    singles = catalogue.single_host_types()
    kind = catalogue.types.get(value) if isinstance(value, str) else None
    if kind is None:
        return _unknown_type(value, singles)
    if not kind.supported:
        raise Invalid("is not served by the Cloud TPU API, only by Compute Engine and GKE", singles)
    if kind.hosts > 1:
        largest = [name for name in singles if catalogue.types[name].generation == kind.generation][-1:]
        problem = f"is a pod slice of {kind.hosts} workers; this version drives types of one worker only"
        raise Invalid(problem, singles, "".join(largest) or None)
    return kind.name


def zone_faults(kind: AcceleratorType, zone: str | None, catalogue: Catalogue) -> list[Fault]:
    """A fault if the (otherwise valid) zone does not offer the type."""
    offered = catalogue.zones_of(kind.name)
    if zone is None or zone in offered:
        return []
    return [Fault("zone", zone, f"does not offer {kind.name}", offered, nearest(zone, offered))]


def _unknown_type(value: Any, singles: tuple[str, ...]) -> str:
    problem = "is empty" if value == "" else "is no accelerator type"
    if not isinstance(value, str):
        return choice(singles)(value)
    # People write v5e-8, which is the generation's name; the API's name is v5litepod-8.
    renamed = _MARKETING_NAME.sub("v5litepod", value.strip().lower()[:100])
    raise Invalid(problem, singles, nearest(renamed, singles))


def known_type(value: str, catalogue: Catalogue) -> AcceleratorType:
    """A type of the catalogue, pod slices included.

    :raises ConfigError: there is none of that name; the nearest one is named.
    """
    kind = catalogue.types.get(value)
    if kind is not None:
        return kind
    renamed = _MARKETING_NAME.sub("v5litepod", value.strip().lower()[:100])
    raise ConfigError(
        [Fault("accelerator_type", value, "is no accelerator type", (), nearest(renamed, catalogue.types))]
    )
