# SPDX-License-Identifier: Apache-2.0
"""Every day: give notice before the grant ends, and fail while anything in the project is billed.

A billed TPU fails the task at once; a zone that does not answer is asked again first. Notices and failures are sent to
the recipients in `[airflow_tpu] failure_notifiers`. A DAG of yours can follow the asset `tpu-grant-notice`.
"""

from __future__ import annotations

from airflow.sdk import DAG, CronTriggerTimetable

from airflow_tpu.notify import failure_notices
from airflow_tpu.operators.grant_watch import CloudTPUGrantNoticeOperator, CloudTPUGrantWatchOperator

with DAG(
    dag_id="tpu_grant_watch",
    schedule=CronTriggerTimetable("0 7 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    on_failure_callback=failure_notices(),
    tags=["tpu"],
    doc_md=__doc__,
) as dag:
    CloudTPUGrantNoticeOperator(task_id="notice")
    CloudTPUGrantWatchOperator(task_id="watch")
