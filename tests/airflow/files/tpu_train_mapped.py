# SPDX-License-Identifier: Apache-2.0
"""Three trainings of one DAG run, each with a TPU of its own: more than the grant has, perhaps."""

from __future__ import annotations

from airflow.sdk import DAG, task_group

from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

with DAG(dag_id="tpu_train_mapped", schedule=None, params=train_params()):

    @task_group
    def one(number: int) -> None:
        """A TPU for each number."""
        with tpu_session(conf="{{ params | tojson }}") as session:
            CloudTPUTrainOperator(task_id="train", **session.arguments)

    one.expand(number=[0, 1, 2])
