# SPDX-License-Identifier: Apache-2.0
"""The catalogue of types, zones, prices and runtime versions."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue, nearest
from airflow_tpu.core.tpu.spec import ZONE, Tier


def test_every_price_has_its_source(catalogue: Catalogue) -> None:
    """No figure stands without the place and day it was read, and spot is cheaper than on-demand."""
    assert len(catalogue.prices) > 100
    for (kind, zone, tier), price in catalogue.prices.items():
        assert ZONE.fullmatch(zone)
        assert price.source
        assert price.date >= "2026"
        if tier is Tier.SPOT:
            assert price.usd_per_chip_hour < catalogue.prices[kind, zone, Tier.ON_DEMAND].usd_per_chip_hour


def test_prices(catalogue: Catalogue) -> None:
    """Preemptible has the spot price; an unpublished price is None, not zero."""
    spot = catalogue.price("v2-8", "us-central1-f", Tier.SPOT)
    assert spot == catalogue.price("v2-8", "us-central1-f", Tier.PREEMPTIBLE)
    assert spot is not None
    assert spot.usd_per_chip_hour == Decimal("0.3375")
    assert catalogue.price("v3-8", "us-east1-d", Tier.SPOT) is None
    assert catalogue.price("v9-8", "us-east1-d", Tier.SPOT) is None


def test_every_default_runtime_version_runs_on_its_type(catalogue: Catalogue) -> None:
    """The defaults of a type are runtime versions of its generation."""
    for kind in catalogue.types.values():
        if kind.supported:
            assert kind.default_runtime in catalogue.runtime_versions(kind.generation)
            assert kind.base_runtime in catalogue.runtime_versions(kind.generation)


def test_single_host_types(catalogue: Catalogue) -> None:
    """Pods and types that the Cloud TPU API does not serve are not among them."""
    singles = catalogue.single_host_types()
    assert {"v2-8", "v3-8", "v4-8", "v5litepod-8"} <= set(singles)
    assert not {"v2-32", "tpu7x-8"} & set(singles)
    assert all(catalogue.zones_of(kind) for kind in singles)


def test_nearest() -> None:
    """The nearest choice is a likeness, and nothing is better than nonsense."""
    assert nearest("us-centrall-f", ["us-central1-f", "europe-west4-a"]) == "us-central1-f"
    assert nearest("zzz", ["us-central1-f"]) is None
    assert nearest(None, []) is None


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """An incomplete folder is an error that names the file."""
    with pytest.raises(FileNotFoundError, match=r"\.csv"):
        Catalogue.load(tmp_path)
