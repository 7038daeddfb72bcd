"""The usage as a table for spreadsheets and notebooks: one line per incarnation, exact figures, unknown left empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from airflow_tpu.core.canonical import instant_to_json
from airflow_tpu.core.incarnation import Row
from airflow_tpu.core.usage import Usage

COLUMNS = (
    "node_id",
    "dag_id",
    "run_id",
    "project",
    "zone",
    "accelerator_type",
    "chips",
    "tier",
    "provisioning",
    "external_ips",
    "allowance",
    "paid_reason",
    "requested_at",
    "begins_at",
    "ends_at",
    "state",
    "estimated",
    "covered",
    "chip_hours",
    "idle_chip_hours",
    "artifact_bytes",
    "usd_per_chip_hour",
    "list_value_usd",
    "price_date",
    "price_source",
)


def csv_text(usage: Usage) -> str:
    """The rows of a usage as CSV with a header (RFC 4180); instants are UTC, an unknown price is an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(_cells(usage.rows))
    return text.getvalue()


def _cells(rows: Iterable[Row]) -> Iterable[dict[str, object]]:
    for row in rows:
        opened = {name: getattr(row.opened, name) for name in COLUMNS if hasattr(row.opened, name)}
        yield {
            **opened,
            "allowance": row.opened.allowance or "",
            "requested_at": _instant(row.opened.requested_at),
            "begins_at": _instant(row.begins_at),
            "ends_at": _instant(row.ends_at),
            "state": row.state,
            "estimated": str(row.estimated).lower(),
            "covered": str(row.covered).lower(),
            "chip_hours": _number(row.chip_hours),
            "idle_chip_hours": _number(row.idle_chip_hours),
            "artifact_bytes": row.artifact_bytes,
            **_price(row),
        }


def _price(row: Row) -> dict[str, str]:
    if row.price is None:
        return {}
    each = row.price.usd_per_chip_hour
    value = _number(each * row.chip_hours)
    named = {"price_date": row.price.date, "price_source": row.price.source}
    return {"usd_per_chip_hour": _number(each), "list_value_usd": value, **named}


def _number(value: Decimal | None) -> str:
    return "" if value is None else f"{value.normalize():f}"


def _instant(instant: datetime | None) -> str:
    return instant_to_json(instant) or ""
