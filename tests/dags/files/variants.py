# SPDX-License-Identifier: Apache-2.0
"""The main job twice: every wait in the triggerer, and every wait in the worker."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

CONF = "{{ params | tojson }}"


def train_dag(dag_id: str, deferrable: bool) -> DAG:
    """The shape of ``dags/tpu_train.py`` with another way to wait."""
    with (
        DAG(dag_id=dag_id, schedule=None, params=train_params()) as dag,
        tpu_session(conf=CONF, deferrable=deferrable, poll_interval=0.5) as session,
    ):
        train = CloudTPUTrainOperator(task_id="train", **session.arguments)
        copy = CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)
        train >> copy
    return dag


deferring = train_dag("tpu_train_deferring", True)
blocking = train_dag("tpu_train_blocking", False)
