# SPDX-License-Identifier: Apache-2.0
"""Train, then measure the result on the same TPU: two trainings in a row, and a task of your own after them.

The second one is told where the first one's artifacts are. Each has its attempts, checkpoints, artifacts and log below
the id of its task; when the TPU is taken away, the one that was running resumes on the next.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

with DAG(
    dag_id="train_then_evaluate", schedule=None, params=train_params(), deadline=deadline_alerts(), doc_md=__doc__
) as dag:
    with tpu_session(conf="{{ params | tojson }}") as session:
        train = CloudTPUTrainOperator(task_id="train", **session.arguments)
        copy = CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)
        evaluate = CloudTPUTrainOperator(
            task_id="evaluate",
            changes={"arguments": "--model {{ ti.xcom_pull(task_ids='copy')['uri'] }}/output"},
            **session.arguments,
        )
        collect = CloudTPUArtifactsToGCSOperator(task_id="collect", **session.arguments)
        train >> copy >> evaluate >> collect

    @task
    def compare(trained: dict[str, Any], evaluated: dict[str, Any]) -> list[str]:
        """Whatever you do with the two results; the TPU is not kept for it."""
        return [trained["uri"], evaluated["uri"]]

    session.delete >> compare(copy.output, collect.output)
