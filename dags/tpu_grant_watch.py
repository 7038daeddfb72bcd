"""Every day: tell before the grant ends, and fail while anything in the project is billed.

For a mail or a chat message give `watch` one of Airflow's notifiers as `on_failure_callback`; it takes its address
from a connection. A DAG of yours can follow the asset `tpu-grant-notice`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from airflow_tpu.operators.watch import CloudTPUGrantNoticeOperator, CloudTPUGrantWatchOperator

with DAG(
    dag_id="tpu_grant_watch",
    schedule=CronTriggerTimetable("0 7 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    tags=["tpu"],
    doc_md=__doc__,
) as dag:
    CloudTPUGrantNoticeOperator(task_id="notice")
    CloudTPUGrantWatchOperator(task_id="watch")
