# SPDX-License-Identifier: Apache-2.0
"""Cross-region transfers of a run, and what they cost: noted in the ledger before the create, priced in the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from airflow_tpu.core.catalogue.transfer_rates import PRICES, Rate, Rates, StoredSize, rate_between
from airflow_tpu.core.ledger.billable import NotFree
from airflow_tpu.core.ledger.events import Transfer
from airflow_tpu.core.ledger.incarnation import RUNNING, Row
from airflow_tpu.core.tpu.spec import region_of

_GIB = Decimal(1024**3)
_SOMEWHERE = "a bucket of unknown place"


def transfers(
    locations: Mapping[str, str | None], below: Mapping[str, StoredSize | None], zone: str, artifacts_uri: str
) -> tuple[Transfer, ...]:
    """Every URI of a run whose bucket is not known to be in the TPU's region.

    :param locations: location of the bucket behind each URI, None where it may not be read.
    :param below: how much lies below each URI, None where it could not be counted.
    :param zone: of the TPU.
    :param artifacts_uri: the one that is written to; the others are read.
    """
    region = region_of(zone).upper()
    found = []
    for uri, location in locations.items():
        place = (location or "").upper()
        if place != region:
            amount = below.get(uri)
            size = amount.size if amount is not None and amount.complete else None
            found.append(Transfer(uri, place, uri == artifacts_uri, size))
    return tuple(found)


@dataclass(frozen=True)
class _Way:
    """One kind of traffic.

    :param outward: from the TPU to the bucket.
    :param region: of the TPU.
    :param location: of the bucket, empty if it is not known.
    :param reason: why its cost was accepted.
    """

    outward: bool
    region: str
    location: str
    reason: str

    def line(self, moved: list[tuple[str, int | None]], rates: Rates) -> NotFree:
        """The cost: a lower bound of the bytes, at the upper end of the rates.

        :param moved: TPU and bytes of each transfer; one that is not known makes the sum unknown, or it would look like
            the whole.
        :param rates: what a GiB costs between continents.
        """
        ends = (self.region, self.location) if self.outward else (self.location, self.region)
        rate, place = rate_between(rates, *ends), self.location or _SOMEWHERE
        sizes, count = [size for _, size in moved], len({node_id for node_id, _ in moved})
        whole = sum(size or 0 for size in sizes) if None not in sizes else None
        quantity = Decimal(whole) / _GIB if whole else None
        usd = None if rate is None or quantity is None else quantity * rate.high
        what, unit = (f"artifacts to {place}", "GiB or more") if self.outward else (f"data from {place}", "GiB a pass")
        note = f"{self._amount(count, quantity)}; {_price(rate)}; accepted: {self.reason or 'no reason was given'}"
        return NotFree(what, quantity, unit if quantity is not None else "", usd, note)

    def _amount(self, count: int, quantity: Decimal | None) -> str:
        if self.outward:
            known = "checkpoints that were replaced come on top" if quantity is not None else "not measured"
            return f"from {self.region}: {known}"
        each = f"one pass by each of {count} TPU(s)" if quantity is not None else "not measured"
        return f"to {self.region}: {each}; how often it was read is not in the ledger"


def across_regions(rows: Iterable[Row], rates: Rates) -> tuple[NotFree, ...]:
    """Lines of the report for data that was moved between regions.

    :param rows: its incarnations; one that was never READY has moved nothing.
    :param rates: what a GiB costs between continents; a pair that is missing is unknown.
    """
    ways: dict[_Way, list[tuple[str, int | None]]] = {}
    for row in rows:
        opened = row.opened
        for transfer in (opened.transfers or ()) if row.hours else ():
            way = _Way(transfer.outward, region_of(opened.zone), transfer.location, opened.paid_reason)
            ways.setdefault(way, []).append((opened.node_id, _size(row, transfer)))
    return tuple(way.line(moved, rates) for way, moved in ways.items())


def _size(row: Row, transfer: Transfer) -> int | None:
    if not transfer.outward:
        return transfer.size
    return None if row.state == RUNNING else row.artifact_bytes


def _price(rate: Rate | None) -> str:
    if rate is None:
        return f"the price between the two is not known here, see {PRICES}"
    return f"at {rate}" if rate.low == rate.high else f"at the upper end of {rate}"
