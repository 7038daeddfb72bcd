# SPDX-License-Identifier: Apache-2.0
"""The catalogue against what the API lists."""

from __future__ import annotations

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.check import differences, served_zones

ZONE = "us-central1-f"


@pytest.fixture
def types(catalogue: Catalogue) -> set[str]:
    """What the zone offers if the catalogue is right."""
    return {name for name, kind in catalogue.types.items() if ZONE in catalogue.zones_of(name) and kind.supported}


@pytest.fixture
def versions(catalogue: Catalogue) -> set[str]:
    """Every runtime version there is."""
    return {version for some in catalogue.runtimes.values() for version in some}


def test_right_catalogue_has_no_differences(catalogue: Catalogue, types: set[str], versions: set[str]) -> None:
    """Nothing is said as long as both lists agree, and every type that is proposed has its runtime versions."""
    assert types
    assert differences(catalogue, ZONE, types, versions) == []


def test_each_difference_is_a_sentence(catalogue: Catalogue, types: set[str], versions: set[str]) -> None:
    """New types, types that are gone, types of an unknown kind and missing runtime versions are told apart."""
    default = catalogue.types["v3-8"].default_runtime
    found = differences(catalogue, ZONE, types - {"v2-8"} | {"v5litepod-1", "v9x-4"}, versions - {default})
    assert found == [
        f"{ZONE} offers v5litepod-1, which the catalogue does not list there",
        f"{ZONE} does not offer v2-8, which the catalogue lists there",
        f"{ZONE} offers v9x-4, whose generation is in no row of generations.csv",
        f"{ZONE} has no runtime version {default}, which the catalogue proposes for v3-8",
    ]


def test_zones_of_other_products_are_not_asked(catalogue: Catalogue) -> None:
    """A zone that only Compute Engine serves is no zone of the Cloud TPU API."""
    assert ZONE in served_zones(catalogue)
    assert "us-central1-ai1a" not in served_zones(catalogue)
