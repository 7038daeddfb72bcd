# SPDX-License-Identifier: Apache-2.0
"""Every night: train the model `digits` on what has changed, and promote it only if it is better."""

from __future__ import annotations

from airflow.sdk import CronTriggerTimetable

from airflow_tpu.nightly import nightly_dag
from airflow_tpu.tpu_run import TPURun

dag = nightly_dag(
    TPURun(model="digits", script="digits.py"),
    dag_id="tpu_nightly_retrain",
    schedule=CronTriggerTimetable("15 2 * * *", timezone="UTC"),
    metric="test_accuracy",
    higher_is_better=True,
)
