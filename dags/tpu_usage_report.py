# SPDX-License-Identifier: Apache-2.0
"""On the first of each month: write the report of the month before, with its chart, beside the ledger.

`gs://<bucket>/<prefix>/reports/2026-11.md`, `.svg` and `.parquet`. Trigger it with a month to write that one again.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, Param

from airflow_tpu.operators.ledger import CloudTPUMonthlyReportOperator

with DAG(
    dag_id="tpu_usage_report",
    schedule=CronTriggerTimetable("0 6 1 * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    params={
        # Null is allowed, because Airflow's form calls an empty text an error otherwise and disables its button.
        "month": Param(
            None,
            type=["null", "string"],
            pattern=r"^(\d{4}-\d{2})?$",
            title="Month",
            description="Such as 2026-11. Empty: the month before the run's own.",
        )
    },
    tags=["tpu"],
    doc_md=__doc__,
) as dag:
    CloudTPUMonthlyReportOperator(
        task_id="report", month="{{ params.month or '' }}", retries=3, retry_delay=timedelta(minutes=10)
    )
