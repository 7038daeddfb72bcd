# SPDX-License-Identifier: Apache-2.0
"""What is billed although a grant covers the TPU: the grant is for chips and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from airflow_tpu.core.catalogue.address_prices import ADDRESS_SOURCE, ADDRESS_USD, NAT_USD
from airflow_tpu.core.ledger.incarnation import Row

NOT_MEASURED = (
    "storage over time (soft-deleted and noncurrent bytes too) and its operations, traffic between regions or out of "
    "Google, the bytes and addresses of Cloud NAT, extra disks and snapshots, logging, the machines that Airflow runs "
    "on or Cloud Composer"
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


@dataclass(frozen=True)
class StoredBytes:
    """What the bucket keeps at one moment.

    :param kept: bytes of the objects below the grant's prefix.
    :param soft_deleted: bytes of removed objects that the bucket's soft-delete policy still keeps and bills; None if
        they were not counted.
    """

    kept: int
    soft_deleted: int | None = None


def not_free(rows: Iterable[Row], stored: StoredBytes | None = None) -> tuple[NotFree, ...]:
    """Every line of a ledger that is billed: TPUs outside the grant first, then addresses, storage, the rest.

    :param rows: its incarnations.
    :param stored: adds what the bucket keeps now.
    """
    rows = tuple(rows)
    return (*_tpus(rows), *_addresses(rows), *_gateway(rows), *_written(rows), *_kept(stored), *_accepted(rows))


def _tpus(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    groups: dict[tuple[str, str, str, str], list[tuple[Row, Decimal]]] = {}
    for row in rows:
        opened = row.opened
        for part in row.billed:
            key = (str(opened.tier), opened.accelerator_type, opened.zone, part.why)
            groups.setdefault(key, []).append((row, part.chip_hours))
    for (tier, kind, zone, why), members in groups.items():
        chip_hours = sum((hours for _, hours in members), Decimal(0))
        price = members[0][0].price
        usd = None if price is None else chip_hours * price.usd_per_chip_hour
        most = "at most, " if any(row.estimated for row, _ in members) else ""
        yield NotFree(f"TPU {tier} {kind}, {zone}", chip_hours, "chip-hours", usd, f"{most}outside the grant: {why}")


def _addresses(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    for tier, usd_per_hour in ADDRESS_USD.items():
        hours = sum((row.hours * row.opened.external_ips for row in rows if row.opened.tier.pool is tier), Decimal(0))
        if hours:
            what = f"external IPv4 addresses, {tier}"
            yield NotFree(what, hours, "address-hours", hours * usd_per_hour, f"{usd_per_hour}/h, {ADDRESS_SOURCE}")


def _gateway(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    """Hours of workers without an external address: whether a NAT serves them is not in the ledger."""
    inside = [row for row in rows if not row.opened.external_ips and row.hours]
    if inside:
        known = [row.hours * row.workers for row in inside if row.workers is not None]
        hours = sum(known, Decimal(0)) if len(known) == len(inside) else None
        note = f"{NAT_USD}/h and 0.045/GiB if Cloud NAT serves them, none with Private Google Access; {ADDRESS_SOURCE}"
        yield NotFree("workers without an external address", hours, "VM-hours", None, note)


def _written(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    written = sum(row.artifact_bytes for row in rows)
    if written:
        note = "billed by storage class, for as long as they are kept"
        yield NotFree("artifacts written to the bucket", Decimal(written) / _GIB, "GiB", None, note)


def _kept(stored: StoredBytes | None) -> Iterable[NotFree]:
    if stored is None:
        return
    if stored.kept:
        note = "below the grant's prefix at the moment of this report; billed by storage class and month"
        yield NotFree("kept in the bucket now", Decimal(stored.kept) / _GIB, "GiB", None, note)
    if stored.soft_deleted is None or stored.soft_deleted:
        quantity = None if stored.soft_deleted is None else Decimal(stored.soft_deleted) / _GIB
        note = "removed, but billed as before until the bucket's soft-delete period ends"
        note = note if quantity is not None else "not counted: see the bucket's soft-delete policy"
        yield NotFree("soft-deleted objects", quantity, "GiB", None, note)


def _accepted(rows: tuple[Row, ...]) -> Iterable[NotFree]:
    """The TPU is covered, and a bill for something around it was accepted; the ledger does not say for what."""
    accepted = [row for row in rows if row.covered and row.opened.paid_reason]
    for reason in dict.fromkeys(row.opened.paid_reason for row in accepted if row.opened.transfers == ()):
        yield NotFree("accepted around a covered TPU", None, "", None, f"accepted: {reason}")
    # Records from before buckets elsewhere were noted: only they could be the cause, and artifacts are all they count.
    written: dict[str, int] = {}
    for row in accepted:
        if row.opened.transfers is None:
            written[row.opened.paid_reason] = written.get(row.opened.paid_reason, 0) + row.artifact_bytes
    for reason, size in written.items():
        quantity, unit = (Decimal(size) / _GIB, "GiB or more") if size else (None, "")
        yield NotFree("traffic to a bucket in another region", quantity, unit, None, f"accepted: {reason}")
