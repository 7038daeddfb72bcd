# SPDX-License-Identifier: Apache-2.0
"""Train on a small TPU first, and on a larger one only if that has gone well: two sessions of different types."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.task_groups import tpu_session
from airflow_tpu.tpu_run import TPURun

SMALL = TPURun(script="hello.py", accelerator_type="v2-8", zone="us-central1-f", tier="on-demand")
LARGE = TPURun(script="hello.py", accelerator_type="v5litepod-4", zone="us-central1-a", tier="spot")

with DAG(dag_id="two_types", schedule=None, deadline=deadline_alerts(), doc_md=__doc__) as dag:
    with tpu_session(conf=SMALL, group_id="small") as small:
        CloudTPUTrainOperator(task_id="train", **small.arguments)
    with tpu_session(conf=LARGE, group_id="large") as large:
        CloudTPUTrainOperator(task_id="train", **large.arguments)
    small.verdict >> large.setup
