# SPDX-License-Identifier: Apache-2.0
"""The usage as CSV: exact figures, unknown left empty."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from decimal import Decimal

from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.report.rows import COLUMNS, Value, records


def csv_text(usage: Usage) -> str:
    """The rows of a usage as CSV with a header (RFC 4180); instants are UTC, an unknown price is an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [column.name for column in COLUMNS])
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in record.items()} for record in records(usage))
    return text.getvalue()


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return value.isoformat() if isinstance(value, datetime) else str(value)
