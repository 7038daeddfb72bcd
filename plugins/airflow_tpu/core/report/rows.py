# SPDX-License-Identifier: Apache-2.0
"""The usage as a table for spreadsheets, notebooks and BigQuery: one record per incarnation."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from airflow_tpu.core.ledger.incarnation import Row
from airflow_tpu.core.ledger.usage import Usage

Value = str | int | bool | Decimal | datetime | None


class ColumnKind(enum.StrEnum):
    """What a column holds; the words are BigQuery's."""

    TEXT = "STRING"
    INTEGER = "INT64"
    FLAG = "BOOL"
    NUMBER = "NUMERIC"
    INSTANT = "TIMESTAMP"


@dataclass(frozen=True)
class Column:
    """One column.

    :param name: its name in CSV, Parquet and BigQuery alike.
    :param kind: what it holds.
    :param nullable: whether it may be empty: not known, or not applicable.
    """

    name: str
    kind: ColumnKind
    nullable: bool = False


COLUMNS = (
    Column("node_id", ColumnKind.TEXT),
    Column("dag_id", ColumnKind.TEXT),
    Column("run_id", ColumnKind.TEXT),
    Column("project", ColumnKind.TEXT),
    Column("zone", ColumnKind.TEXT),
    Column("accelerator_type", ColumnKind.TEXT),
    Column("chips", ColumnKind.INTEGER),
    Column("tier", ColumnKind.TEXT),
    Column("provisioning", ColumnKind.TEXT),
    Column("external_ips", ColumnKind.INTEGER),
    Column("allowance", ColumnKind.TEXT, nullable=True),
    Column("paid_reason", ColumnKind.TEXT, nullable=True),
    Column("requested_at", ColumnKind.INSTANT),
    Column("begins_at", ColumnKind.INSTANT, nullable=True),
    Column("ends_at", ColumnKind.INSTANT, nullable=True),
    Column("state", ColumnKind.TEXT),
    Column("estimated", ColumnKind.FLAG),
    Column("covered", ColumnKind.FLAG),
    Column("chip_hours", ColumnKind.NUMBER),
    Column("covered_chip_hours", ColumnKind.NUMBER),
    Column("idle_chip_hours", ColumnKind.NUMBER, nullable=True),
    Column("lost_chip_hours", ColumnKind.NUMBER, nullable=True),
    Column("artifact_bytes", ColumnKind.INTEGER),
    Column("usd_per_chip_hour", ColumnKind.NUMBER, nullable=True),
    Column("list_value_usd", ColumnKind.NUMBER, nullable=True),
    Column("price_date", ColumnKind.TEXT, nullable=True),
    Column("price_source", ColumnKind.TEXT, nullable=True),
)
_COPIED = (
    "node_id",
    "dag_id",
    "run_id",
    "project",
    "zone",
    "accelerator_type",
    "chips",
    "provisioning",
    "external_ips",
    "allowance",
)


def records(usage: Usage) -> Iterator[dict[str, Value]]:
    """One record per incarnation, its keys the names of :data:`COLUMNS`; unknown is None, instants are UTC."""
    for row in usage.rows:
        opened = row.opened
        yield {
            **{name: getattr(opened, name) for name in _COPIED},
            "tier": str(opened.tier),
            "paid_reason": opened.paid_reason or None,
            "requested_at": opened.requested_at.astimezone(UTC),
            "begins_at": row.begins_at,
            "ends_at": row.ends_at,
            "state": row.state,
            "estimated": row.estimated,
            "covered": row.covered,
            "chip_hours": row.chip_hours,
            "covered_chip_hours": row.covered_chip_hours,
            "idle_chip_hours": row.idle_chip_hours,
            "lost_chip_hours": row.lost_chip_hours,
            "artifact_bytes": row.artifact_bytes,
            **_price(row),
        }


def _price(row: Row) -> dict[str, Value]:
    price = row.price
    return {
        "usd_per_chip_hour": None if price is None else price.usd_per_chip_hour,
        "list_value_usd": None if price is None else price.usd_per_chip_hour * row.chip_hours,
        "price_date": None if price is None else price.date,
        "price_source": None if price is None else price.source,
    }
