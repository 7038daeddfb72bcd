"""What is billed although a grant covers the TPU: the grant is for chips and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from airflow_tpu.core.incarnation import Row
from airflow_tpu.core.tpu import Tier

# USD for one external IPv4 address and hour: https://cloud.google.com/vpc/network-pricing, read 2026-10-16.
ADDRESS_USD = {Tier.ON_DEMAND: Decimal("0.005"), Tier.SPOT: Decimal("0.0025")}
ADDRESS_SOURCE = "Google network pricing, 2026-10-16"
NOT_MEASURED = (
    "storage over time and its operations, traffic between regions or out of Google, Cloud NAT, logging, "
    "the machines that Airflow runs on"
)
_GIB = Decimal(1024**3)


@dataclass(frozen=True)
class NotFree:
    """Something that is billed.

    :param what: in words.
    :param quantity: how much of it, None if it is not measured.
    :param unit: unit of the quantity.
    :param usd: US dollars at list price, None if unknown.
    :param note: where the figure comes from, or why there is none.
    """

    what: str
    quantity: Decimal | None
    unit: str
    usd: Decimal | None
    note: str


def not_free(rows: Iterable[Row]) -> tuple[NotFree, ...]:
    """Every line of a ledger that is billed: TPUs outside the grant first, then addresses, storage, the rest."""
    rows = tuple(rows)
    return (*_tpus(rows), *_addresses(rows), *_storage(rows), *_accepted(rows))


def _tpus(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        if not row.covered and row.chip_hours:
            opened = row.opened
            key = (str(opened.tier), opened.accelerator_type, opened.zone, opened.paid_reason)
            groups.setdefault(key, []).append(row)
    for (tier, kind, zone, reason), members in groups.items():
        chip_hours = sum((row.chip_hours for row in members), Decimal(0))
        price = members[0].price
        usd = None if price is None else chip_hours * price.usd_per_chip_hour
        note = f"outside the grant: {reason or 'no reason was given'}"
        yield NotFree(f"TPU {tier} {kind}, {zone}", chip_hours, "chip-hours", usd, note)


def _addresses(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    for tier, usd_per_hour in ADDRESS_USD.items():
        hours = sum((row.hours * row.opened.external_ips for row in rows if row.opened.tier.pool is tier), Decimal(0))
        if hours:
            what = f"external IPv4 addresses, {tier}"
            yield NotFree(what, hours, "address-hours", hours * usd_per_hour, f"{usd_per_hour}/h, {ADDRESS_SOURCE}")


def _storage(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    written = sum(row.artifact_bytes for row in rows)
    if written:
        note = "billed by storage class, for as long as they are kept"
        yield NotFree("artifacts written to the bucket", Decimal(written) / _GIB, "GiB", None, note)


def _accepted(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    """The TPU is covered, but somebody accepted that something around it is not: a bucket in another region."""
    reasons = dict.fromkeys(row.opened.paid_reason for row in rows if row.covered and row.opened.paid_reason)
    for reason in reasons:
        yield NotFree("traffic to a bucket in another region", None, "", None, f"accepted: {reason}")
