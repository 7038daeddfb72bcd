# SPDX-License-Identifier: Apache-2.0
"""How the catalogue differs from what the Cloud TPU API says it offers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from airflow_tpu.core.catalogue.catalogue import Catalogue


def served_zones(catalogue: Catalogue) -> list[str]:
    """Zones in which the catalogue lists a type that the Cloud TPU API serves."""
    served = (name for name, kind in catalogue.types.items() if kind.supported)
    return sorted({zone for name in served for zone in catalogue.zones_of(name)})


def differences(catalogue: Catalogue, zone: str, types: Collection[str], versions: Collection[str]) -> list[str]:
    """One sentence for each difference that would mislead a person who fills in the form.

    :param zone: the zone that was asked.
    :param types: accelerator types that it offers.
    :param versions: runtime versions that it offers.
    """
    listed = {name for name in catalogue.types if zone in catalogue.zones_of(name) and catalogue.types[name].supported}
    known = {name for name in types if catalogue.generations.parse(name)}
    found = [
        f"{zone} offers {name}, which the catalogue does not list there" for name in _ordered(known - listed, catalogue)
    ]
    found += [
        f"{zone} does not offer {name}, which the catalogue lists there"
        for name in _ordered(listed - set(types), catalogue)
    ]
    found += [
        f"{zone} offers {name}, whose generation is in no row of generations.csv" for name in sorted(set(types) - known)
    ]
    return found + _runtimes(catalogue, zone, listed & set(types), set(versions))


def _runtimes(catalogue: Catalogue, zone: str, types: Iterable[str], versions: set[str]) -> list[str]:
    defaults: dict[str, str] = {}
    for name in _ordered(types, catalogue):
        kind = catalogue.types[name]
        for version in (kind.default_runtime, kind.base_runtime):
            if version:
                defaults.setdefault(version, name)
    return [
        f"{zone} has no runtime version {version}, which the catalogue proposes for {name}"
        for version, name in defaults.items()
        if version not in versions
    ]


def _ordered(names: Iterable[str], catalogue: Catalogue) -> list[str]:
    parsed = {name: catalogue.generations.parse(name) for name in names}
    return sorted(
        parsed, key=lambda name: ((found.generation, found.chips) if (found := parsed[name]) else ("", 0), name)
    )
