# SPDX-License-Identifier: Apache-2.0
"""Every 15 minutes: delete the TPUs that outlived their DAG run, whether or not its teardown ran."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_tpu.operators.reaper import CloudTPUReaperOperator

with DAG(
    dag_id="tpu_reaper",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own default time zone
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    tags=["tpu"],
    doc_md=__doc__,
) as dag:
    CloudTPUReaperOperator(task_id="reap", retries=3, retry_delay=timedelta(minutes=1))
