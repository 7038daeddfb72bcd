# SPDX-License-Identifier: Apache-2.0
"""The usage as Parquet, for notebooks and for BigQuery, which reads it from the bucket."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import TYPE_CHECKING, Any

from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.report.rows import COLUMNS, ColumnKind, Value, records
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

# BigQuery's NUMERIC: 38 digits, 9 of them decimals. A billionth of a chip-hour is less than four microseconds.
DIGITS, DECIMALS = 38, 9
_UNIT = Decimal(1).scaleb(-DECIMALS)


def parquet_bytes(usage: Usage) -> bytes:
    """One file, one record per incarnation; the schema is the same for an empty usage.

    :raises ConfigError: pyarrow is not installed. The Google provider brings it, for Python below 3.14 at least.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it has no types
    except ImportError as error:
        raise ConfigError([Fault("parquet", "", "needs the package pyarrow, which is not installed")]) from error
    rows = [{name: _exact(value) for name, value in record.items()} for record in records(usage)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema(pa)), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def schema(pa: Any) -> pa.Schema:
    """The schema of the file.

    :param pa: the module ``pyarrow``.
    """
    kinds = {
        ColumnKind.TEXT: pa.string(),
        ColumnKind.INTEGER: pa.int64(),
        ColumnKind.FLAG: pa.bool_(),
        ColumnKind.NUMBER: pa.decimal128(DIGITS, DECIMALS),
        ColumnKind.INSTANT: pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(column.name, kinds[column.kind], column.nullable) for column in COLUMNS])


def _exact(value: Value) -> Value:
    if not isinstance(value, Decimal):
        return value
    with localcontext() as context:
        context.prec = DIGITS
        return value.quantize(_UNIT, rounding=ROUND_HALF_EVEN)
