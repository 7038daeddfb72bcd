"""Report what a run used: what was free, what it would have cost, and what was not free."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPUUsageReportOperator(CloudTPUBaseOperator):
    """Fold the ledger records of this DAG run into a table in the log and a summary in XCom.

    :return: chip-hours, list value not paid and every line that is not free, as plain JSON below 48 kB.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Read, fold, print."""
        from airflow_tpu.core.report import text_report
        from airflow_tpu.core.summary import json_summary
        from airflow_tpu.core.usage import fold

        bench = self.bench(context)
        usage = fold(bench.ledger.events(bench.key), bench.catalogue, dt.datetime.now(dt.UTC))
        for line in text_report(usage, bench.grant).splitlines():
            self.log.info("%s", line)
        return json_summary(usage, bench.grant)
