# SPDX-License-Identifier: Apache-2.0
"""What the local cloud catalogue where: accelerator types, zones and runtime versions, from ``include/catalogue``.

The tables are data shared with the product; the reading of them is not (see the package docstring).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_DIRECTORY = Path(__file__).resolve().parents[2] / "include" / "catalogue"


@dataclass(frozen=True)
class AcceleratorType:
    """One accelerator type.

    :param name: for example ``v5litepod-8``.
    :param generation: for example ``v5e``.
    :param chips: chips in all.
    :param cores: TensorCores in all.
    :param hosts: TPU VMs; each is a worker with an address of its own.
    :param topology: for example ``2x4``; empty where Google publishes none.
    :param zones: where the type is sold.
    :param api_type: its generation in the API's own list, such as ``V5LITE_POD``; empty where that has none.
    :param quota: name of its quota; ``*`` stands for the word of the tier.
    :param quota_units: what the quota counts: TensorCores for v2 and v3, chips for what came later. Google's pages say
        "cores or chips" for v4 and later; one unit had to be chosen here.
    """

    name: str
    generation: str
    chips: int
    cores: int
    hosts: int
    topology: str
    zones: frozenset[str]
    api_type: str
    quota: str
    quota_units: int


@dataclass(frozen=True)
class RuntimeVersion:
    """One VM image: its name and the generations it boots on."""

    name: str
    generations: frozenset[str]


@dataclass(frozen=True)
class Catalogue:
    """All types and runtime versions; build it with :meth:`load`."""

    types: dict[str, AcceleratorType]
    runtime_versions: dict[str, RuntimeVersion]
    zones: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, directory: Path = DEFAULT_DIRECTORY) -> Catalogue:
        """Read the four CSV files.

        :raises FileNotFoundError: if one is missing.
        :raises KeyError: if a type is of a generation without a row.
        """
        generations = {row["generation"]: row for row in _rows(directory / "generations.csv")}
        zones_of: dict[str, set[str]] = {}
        for row in _rows(directory / "prices.csv"):
            zones_of.setdefault(row["accelerator_type"], set()).add(row["zone"])
        served = (row for row in _rows(directory / "accelerators.csv") if row["tpu_api"] == "v2")
        types = [
            _accelerator(row, generations[row["generation"]], zones_of.get(row["accelerator_type"], ()))
            for row in served
        ]
        images = [
            RuntimeVersion(row["runtime_version"], frozenset(row["generations"].split(";")))
            for row in _rows(directory / "runtime_versions.csv")
        ]
        zones = tuple(sorted({zone for kind in types for zone in kind.zones}))
        return cls({kind.name: kind for kind in types}, {image.name: image for image in images}, zones)

    def types_in(self, zone: str) -> list[AcceleratorType]:
        """Return the types sold in a zone, by name."""
        return sorted((kind for kind in self.types.values() if zone in kind.zones), key=lambda kind: kind.name)

    def runtime_versions_in(self, zone: str) -> list[str]:
        """Return the images that boot on at least one type of the zone, by name."""
        generations = {kind.generation for kind in self.types_in(zone)}
        return sorted(image.name for image in self.runtime_versions.values() if image.generations & generations)

    def by_topology(self, zone: str, api_type: str, topology: str) -> AcceleratorType | None:
        """Return the type of the zone with this generation in the API's list and this topology."""
        matches = (kind for kind in self.types_in(zone) if kind.api_type == api_type and kind.topology == topology)
        return next(matches, None)


def _accelerator(row: dict[str, str], generation: dict[str, str], zones: Iterable[str]) -> AcceleratorType:
    hosts = int(row["hosts"])
    return AcceleratorType(
        name=row["accelerator_type"],
        generation=row["generation"],
        chips=int(row["chips"]),
        cores=int(row["cores"]),
        hosts=hosts,
        topology=row["topology"],
        zones=frozenset(zones),
        api_type=generation["api_type"],
        quota=generation["slice_quota" if hosts > 1 else "quota"],
        quota_units=int(row[generation["quota_counts"]]),
    )


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)
