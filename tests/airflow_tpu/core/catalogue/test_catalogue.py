# SPDX-License-Identifier: Apache-2.0
"""The catalogue of types, zones, prices and runtime versions."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue, nearest
from airflow_tpu.core.tpu.spec import ZONE, Tier
from airflow_tpu.errors import ConfigError
from tests.airflow_tpu.cloud_env import INCLUDE


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


@pytest.mark.parametrize(
    ("runtime", "python"),
    [
        ("tpu-vm-tf-2.13.1-pod", (3, 8)),
        ("tpu-vm-tf-2.14.1", (3, 10)),
        ("tpu-ubuntu2204-base", (3, 10)),
        ("v2-alpha-tpuv6e", (3, 10)),
        ("tpu-ubuntu2404-base", None),
        ("", None),
    ],
)
def test_python_of_a_runtime_version(catalogue: Catalogue, runtime: str, python: tuple[int, int] | None) -> None:
    """The table says it; of a runtime version that is not there, nothing is claimed."""
    assert catalogue.pythons.get(runtime) == python


@pytest.mark.parametrize("given", [None, "", "3.12", "3", "py310"])
def test_python_may_be_left_out_and_not_be_nonsense(tmp_path: Path, given: str | None) -> None:
    """A table of one's own that is older than the column is read; a cell that is no version is named."""
    own, (column, cell) = tmp_path / "own.csv", (("", "") if given is None else (",python", f",{given}"))
    own.write_text(f"runtime_version,generations,source,source_date{column}\nmine,v2,me,2026-11-29{cell}\n")
    if given in ("3", "py310"):
        with pytest.raises(ConfigError, match=r"row 2, column python = .*: is no version of Python, such as 3\.10"):
            Catalogue.load(INCLUDE / "catalogue", {"runtime_versions.csv": own})
        return
    pythons = Catalogue.load(INCLUDE / "catalogue", {"runtime_versions.csv": own}).pythons
    assert pythons == ({"mine": (3, 12)} if given == "3.12" else {})
