# SPDX-License-Identifier: Apache-2.0
"""Train when new data is announced and a file of today is there: a session after an asset and a sensor.

No TPU is asked for while the sensor waits. The artifacts are announced as an asset of their own.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset, task

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.task_groups import tpu_session
from airflow_tpu.tpu_run import TPURun

RUN = TPURun(script="hello.py", accelerator_type="v2-8", zone="us-central1-f")

with DAG(
    dag_id="after_sensor_and_asset",
    schedule=[Asset("training-data")],
    max_active_runs=1,
    deadline=deadline_alerts(),
    doc_md=__doc__,
) as dag:

    @task.sensor(mode="reschedule", poke_interval=60, timeout=timedelta(hours=6).total_seconds())
    def ready() -> bool:
        """Whether the file is there; a sensor of any provider stands here as well."""
        return Path(os.environ["TRAINING_DATA"], "ready").exists()

    with tpu_session(conf=RUN) as session:
        train = CloudTPUTrainOperator(task_id="train", **session.arguments)
        copy = CloudTPUArtifactsToGCSOperator(task_id="copy", outlets=[Asset("trained")], **session.arguments)
        train >> copy
    ready() >> session.setup
