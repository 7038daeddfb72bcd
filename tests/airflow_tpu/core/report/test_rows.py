# SPDX-License-Identifier: Apache-2.0
"""CSV and Parquet of a usage, and the definition of the BigQuery table over the latter."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from hypothesis import given, settings

from airflow_tpu.core.catalogue.catalogue import Catalogue
from airflow_tpu.core.ledger.events import Closed, Opened
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.report.parquet import parquet_bytes
from airflow_tpu.core.report.rows import COLUMNS
from airflow_tpu.core.report.usage_csv import csv_text
from tests.airflow_tpu.core.made_ledger import ASKED, NOW, ROW, closed, ledgers, opened

SQL = Path(__file__).parents[4] / "include" / "bigquery" / "usage.sql"


def parquet(usage: Usage) -> list[dict[str, object]]:
    """The records of a Parquet file, as a reader that knows nothing of us finds them."""
    found: list[dict[str, object]] = pq.read_table(io.BytesIO(parquet_bytes(usage))).to_pylist()
    return found


def test_parquet_of_one_incarnation(catalogue: Catalogue) -> None:
    """Numbers are exact decimals, instants are UTC, and what is unknown is null."""
    events: list[Opened | Closed] = [opened(), closed(training_seconds=3600.0, lost_seconds=None, artifact_bytes=5)]
    (record,) = parquet(fold(events, catalogue, NOW))
    assert list(record) == [column.name for column in COLUMNS]
    assert (record["chip_hours"], record["list_value_usd"]) == (Decimal(6), Decimal("6.75"))
    assert (record["idle_chip_hours"], record["lost_chip_hours"], record["paid_reason"]) == (Decimal(2), None, None)
    assert (record["requested_at"], record["covered"], record["artifact_bytes"]) == (ASKED, True, 5)
    assert record["begins_at"] == datetime(2026, 11, 27, 12, 5, tzinfo=UTC)


@settings(max_examples=30)
@given(ledgers())
def test_csv_and_parquet_say_the_same(catalogue: Catalogue, events: list[Opened | Closed]) -> None:
    """For every ledger, cell for cell; Parquet keeps nine decimals."""
    usage = fold(events, catalogue, NOW)
    lines = list(csv.DictReader(io.StringIO(csv_text(usage), newline="")))
    records = parquet(usage)
    assert len(lines) == len(records) == len(usage.rows)
    for line, record in zip(lines, records, strict=True):
        for name, value in record.items():
            assert same(line[name], value), (name, line[name], value)


def same(text: str, value: object) -> bool:
    """Whether a cell of CSV is this value."""
    if isinstance(value, Decimal):
        return abs(Decimal(text) - value) <= Decimal("1e-9")
    if isinstance(value, datetime):
        return datetime.fromisoformat(text) == value
    return text == ("" if value is None else str(value).lower() if isinstance(value, bool) else str(value))


def test_an_empty_usage_has_the_same_schema(catalogue: Catalogue) -> None:
    """A month without a TPU does not break a reader of all months."""
    empty, full = (
        pq.read_schema(io.BytesIO(parquet_bytes(fold(events, catalogue, NOW)))) for events in ([], [opened()])
    )
    assert empty == full
    assert csv_text(fold([], catalogue, NOW)).count("\n") == 1


def test_a_paid_tpu_has_no_allowance(catalogue: Catalogue) -> None:
    """Not covered is a flag and an empty allowance, with the reason beside it."""
    events: list[Opened | Closed] = [opened("a"), opened("b", allowance=None, paid_reason="deadline")]
    first, second = parquet(fold(events, catalogue, NOW))
    assert (first["allowance"], first["covered"]) == (ROW, True)
    assert (second["allowance"], second["covered"], second["paid_reason"]) == (None, False, "deadline")


BIGQUERY = {
    "string": "STRING",
    "int64": "INT64",
    "bool": "BOOL",
    "decimal128(38, 9)": "NUMERIC",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
}
"""What BigQuery makes of a type of Parquet, by its documentation of external tables."""


def test_bigquery_s_table_has_the_columns_of_the_files(catalogue: Catalogue) -> None:
    """Name and type, in the same order as in the Parquet files it reads; every column of such a table may be NULL."""
    sql = SQL.read_text(encoding="utf-8")
    found = re.findall(r"^  (\w+) ([A-Z0-9]+),?$", sql, re.MULTILINE)
    written = pq.read_schema(io.BytesIO(parquet_bytes(fold([opened(), closed()], catalogue, NOW))))
    assert found == [(field.name, BIGQUERY[str(field.type)]) for field in written]
    assert "gs://BUCKET/PREFIX/reports/*.parquet" in sql
