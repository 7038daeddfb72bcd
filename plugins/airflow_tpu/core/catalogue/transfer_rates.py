# SPDX-License-Identifier: Apache-2.0
"""Rates of data transfer between regions, and the sentence about a bucket elsewhere: the bill that grantees got."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

PRICES = "https://cloud.google.com/storage/pricing"
"""Where Google lists what data transfer costs, by the pair of regions."""

CONTINENTS = ("north-america", "south-america", "europe", "asia", "oceania")
"""Places between which the catalogue knows a range of rates."""

_MULTI_REGIONS = ("US", "EU", "ASIA")
_GIB = 1024**3
_CENT = Decimal("0.01")
# Jakarta and Mexico are in none: Google prices them apart from their neighbours.
_PLACES = (
    (re.compile(r"ASIA-SOUTHEAST2|NORTHAMERICA-SOUTH1"), ""),
    (re.compile(r"US|US-.*|NORTHAMERICA-.*|NAM\d+"), "north-america"),
    (re.compile(r"EU|EUR\d+|EUROPE-.*"), "europe"),
    (re.compile(r"ASIA|ASIA\d+|ASIA-.*"), "asia"),
    (re.compile(r"SOUTHAMERICA-.*"), "south-america"),
    (re.compile(r"AUSTRALIA-.*|AU\d+"), "oceania"),
)


@dataclass(frozen=True)
class Rate:
    """What a GiB costs on its way from one continent to another: a range, as the sources differ.

    :param low: US dollars per GiB, the least that a source names.
    :param high: the most.
    :param source: where both were read.
    :param date: ISO day they were read.
    """

    low: Decimal
    high: Decimal
    source: str
    date: str

    def __str__(self) -> str:
        each = f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"
        return f"{each} USD per GiB ({self.source}, read {self.date})"


Rates = Mapping[tuple[str, str], Rate]
"""Rates by the continents from and to."""


@dataclass(frozen=True)
class StoredSize:
    """Size of what is stored below a URI.

    :param size: bytes of the live objects that were counted.
    :param complete: whether that is all of them; a listing of very many ends early.
    """

    size: int
    complete: bool = True


def continent(location: str) -> str:
    """Where a region, dual-region or multi-region is, empty if the catalogue has no rates for that place."""
    return next((name for pattern, name in _PLACES if pattern.fullmatch(location.upper())), "")


def rate_between(rates: Rates, location: str, region: str) -> Rate | None:
    """What a GiB costs from a bucket to a TPU, None if it is not known; unknown is not free.

    :param location: where the bucket is.
    :param region: where the TPU is.
    """
    return rates.get((continent(location), continent(region)))


def sentence(location: str, region: str, below: StoredSize | None, rate: Rate | None = None) -> str:
    """What a bucket in another place costs.

    :param location: where the bucket is, in capitals.
    :param region: where the TPU is, in capitals.
    :param below: what is stored below the URI, None if it could not be counted.
    :param rate: what a GiB costs between the two, None if it is not known.
    """
    kind = "multi-region " if location in _MULTI_REGIONS else ""
    return (
        f"is in {kind}{location}, the TPU in {region}; every GiB between them is billed. {_amount(below, rate)}. "
        f"{_price(rate)}, see {PRICES}; the best documented accident of this kind cost a grantee about 2,500 USD in "
        "January 2026"
    )


def _price(rate: Rate | None) -> str:
    if rate is None:
        return "The price of a GiB depends on the pair of regions and is not known here"
    return f"The price of a GiB depends on the pair of regions: {rate}"


def _amount(below: StoredSize | None, rate: Rate | None) -> str:
    if below is None:
        return "How much lies below this URI is unknown"
    if not below.size:
        return "Nothing lies below this URI yet; what is written to it counts"
    least = "" if below.complete else "at least "
    gib = below.size / _GIB
    number = f"{gib:,.1f} GiB" if gib >= 0.1 else f"{gib:.2g} GiB"
    cost = "" if rate is None else f", {least or 'about '}{_usd(below.size, rate)} each time they are read"
    return f"Below this URI lie {least}{number}{cost}, and each pass over them counts again"


def _usd(size: int, rate: Rate) -> str:
    low, high = (Decimal(size) / _GIB * each for each in (rate.low, rate.high))
    if high < _CENT:
        return "less than 0.01 USD"
    return f"{high:,.2f} USD" if low == high else f"{low:,.2f} to {high:,.2f} USD"
