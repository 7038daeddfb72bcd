# SPDX-License-Identifier: Apache-2.0
"""The files of a month's report."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_tpu.core.ledger.usage import Usage
from airflow_tpu.core.report.chart_svg import chart_svg
from airflow_tpu.core.report.month import Month, month_daily
from airflow_tpu.core.report.month_text import markdown
from airflow_tpu.core.report.parquet import parquet_bytes


@dataclass(frozen=True)
class ReportFile:
    """One file of a month's report.

    :param name: such as ``2026-11.md``.
    :param media_type: what it is.
    :param content: its bytes.
    """

    name: str
    media_type: str
    content: bytes


def report_files(usage: Usage, month: Month) -> tuple[ReportFile, ...]:
    """Report, chart and table of a month; the same usage gives the same report.

    :raises ConfigError: pyarrow is missing, see :func:`airflow_tpu.core.report.parquet.parquet_bytes`.
    """
    chart = chart_svg(month_daily(usage, month), f"TPU usage {month}")
    text = markdown(usage, month, f"{month}.svg")
    return (
        ReportFile(f"{month}.svg", "image/svg+xml", chart.encode()),
        ReportFile(f"{month}.parquet", "application/vnd.apache.parquet", parquet_bytes(usage)),
        ReportFile(f"{month}.md", "text/markdown; charset=utf-8", text.encode()),
    )
