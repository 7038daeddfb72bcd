# SPDX-License-Identifier: Apache-2.0
"""Report what was used: what was free, what it would have cost, and what was not free."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_tpu.clients.log_groups import log_group
from airflow_tpu.links.ledger import CloudTPUUsageLink
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.reporting import reported

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.lifecycle.run_context import RunContext

USAGE_ASSET = "tpu-usage"
"""Asset, and asset alias of the teardown, that tells of every finished run what it has used."""


class CloudTPUUsageReportOperator(CloudTPUBaseOperator):
    """Fold the ledger records of this DAG run into a table in the log and a summary in XCom.

    It reports all sessions of the DAG run; with ``session``, or in a mapped task group, that one.

    :return: chip-hours, list value not paid and every line that is not free, as plain JSON below 48 kB.
    """

    operator_extra_links = (CloudTPUUsageLink(),)

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """Read, fold, print."""
        from airflow_tpu.core.report.text import text_report
        from airflow_tpu.core.report.usage_json import json_summary

        CloudTPUUsageLink.persist_page(context)
        run = self.run_context(context)
        with log_group(self.log, "Read the ledger"):
            usage = run.usage(dt.datetime.now(dt.UTC), whole=True)
        for line in text_report(usage, run.grant).splitlines():
            self.log.info("%s", line)
        return json_summary(usage, run.grant)


class CloudTPUMonthlyReportOperator(CloudTPUBaseOperator):
    """Write the report of a calendar month to ``gs://bucket/prefix/reports/`` of the grant: Markdown, chart, Parquet.

    A repetition writes the same files again; the parts that were still running the first time are then complete.

    :param month: ``2026-11``; empty for the last month that had ended when the DAG run was triggered (templated).
    :return: the URIs that were written, and the summary of the month.
    """

    template_fields: Sequence[str] = ("month", "gcp_conn_id", "impersonation_chain")

    def __init__(self, *, month: str = "", **kwargs: Any) -> None:
        super().__init__(conf={}, **kwargs)
        self.month = month

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """Read the month, fold it, write the files."""
        from airflow_tpu.core.report.month import Month
        from airflow_tpu.core.report.usage_json import json_summary
        from airflow_tpu.stores.reports import ReportStore

        run = self.run_context(context)
        month = Month.parse(self.month) if self.month else Month.before(context["dag_run"].run_after)
        reports = ReportStore(run.clients.storage, run.stores.ledger.root)
        with log_group(self.log, "Read the ledger"):
            usage = reports.usage(month, run.catalogue)
        written = reports.write(usage, month)
        for uri in written:
            self.log.info("written: %s", uri)
        return {"written": written, "summary": json_summary(usage, run.grant)}


def announce(context: Context, outlets: Iterable[object], run: RunContext) -> None:
    """Emit the usage of this run as an event of the asset :data:`USAGE_ASSET`, if the task has its alias as an outlet.

    :param context: of the running task; events of a task that fails are lost.
    :param outlets: of the running task.
    :param run: clients and stores.
    """
    from airflow_tpu.core.report.usage_json import json_summary

    alias = AssetAlias(USAGE_ASSET)
    if alias in outlets:
        summary = json_summary(run.usage(dt.datetime.now(dt.UTC)), run.grant)
        context["outlet_events"][alias].add(Asset(USAGE_ASSET), extra=summary)
