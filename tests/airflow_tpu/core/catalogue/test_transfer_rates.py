# SPDX-License-Identifier: Apache-2.0
"""The sentence about a bucket in another place."""

from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.catalogue.transfer_rates import Rate, StoredSize, continent, rate_between, sentence

GIB = 1024**3
RANGE = Rate(Decimal("0.08"), Decimal("0.12"), "a list", "2026-11-28")
ONE = Rate(Decimal("0.02"), Decimal("0.02"), "a list", "2026-11-28")


@pytest.mark.parametrize(
    ("below", "said"),
    [
        (StoredSize(120 * 10**9), "lie 111.8 GiB, and each pass"),
        (StoredSize(5 * 1024**4, complete=False), "lie at least 5,120.0 GiB"),
        (StoredSize(3 * 1024**2), "lie 0.0029 GiB"),
        (StoredSize(0), "Nothing lies below this URI yet"),
        (None, "is unknown"),
    ],
)
def test_the_amount_is_said_as_far_as_it_is_known(below: StoredSize | None, said: str) -> None:
    """A1: GiB of what is there; a part is a lower bound; unknown is neither nothing nor a guess."""
    assert said in sentence("EUROPE-WEST4", "US-CENTRAL1", below)


@pytest.mark.parametrize(
    ("below", "rate", "said"),
    [
        (StoredSize(25_000 * GIB), RANGE, "25,000.0 GiB, about 2,000.00 to 3,000.00 USD each time they are read"),
        (StoredSize(100 * GIB), ONE, "100.0 GiB, about 2.00 USD each time they are read"),
        (StoredSize(100 * GIB, complete=False), ONE, "at least 100.0 GiB, at least 2.00 USD each time"),
        (StoredSize(1024), RANGE, "less than 0.01 USD each time"),
        (None, RANGE, "is unknown. The price of a GiB depends on the pair of regions: 0.08 to 0.12 USD per GiB"),
        (StoredSize(GIB), ONE, "0.02 USD per GiB (a list, read 2026-11-28)"),
    ],
)
def test_the_cost_of_one_pass_is_a_range_with_its_source(below: StoredSize | None, rate: Rate, said: str) -> None:
    """A1: what one pass costs by the rates on record; never 0, and a lower bound where not all was counted."""
    assert said in sentence("EUROPE-WEST4", "US-CENTRAL1", below, rate)


def test_no_price_is_invented() -> None:
    """A1: without a rate the only amount of money is that of the accident on record."""
    text = sentence("EU", "EUROPE-WEST4", StoredSize(GIB))
    assert text.count("USD") == text.count("2,500 USD") == 1
    assert "is in multi-region EU" in text
    assert "is not known here, see https://cloud.google.com/storage/pricing" in text


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("us-central2", "north-america"),
        ("US", "north-america"),
        ("NAM4", "north-america"),
        ("NORTHAMERICA-NORTHEAST1", "north-america"),
        ("NORTHAMERICA-SOUTH1", ""),
        ("EUR4", "europe"),
        ("EU", "europe"),
        ("ASIA1", "asia"),
        ("ASIA-NORTHEAST1", "asia"),
        ("ASIA-SOUTHEAST2", ""),
        ("SOUTHAMERICA-EAST1", "south-america"),
        ("AUSTRALIA-SOUTHEAST1", "oceania"),
        ("ME-WEST1", ""),
        ("AFRICA-SOUTH1", ""),
    ],
)
def test_places_are_on_continents_or_unknown(location: str, name: str) -> None:
    """Regions, dual-regions and multi-regions have a continent; what Google prices apart has none."""
    assert continent(location) == name


def test_the_catalogue_knows_the_way_to_every_tpu(catalogue: Catalogue) -> None:
    """A1: every zone that offers a TPU has a rate from Europe, America and Asia; a place without rates has none."""
    regions = {zone.rpartition("-")[0] for zones in catalogue.zones.values() for zone in zones}
    for region in regions:
        for location in ("EU", "US", "ASIA", "AUSTRALIA-SOUTHEAST1"):
            rate = rate_between(catalogue.transfer, location, region)
            assert rate is not None
            assert 0 < rate.low <= rate.high
        assert rate_between(catalogue.transfer, "ME-WEST1", region) is None
