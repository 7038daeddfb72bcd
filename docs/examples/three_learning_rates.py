# SPDX-License-Identifier: Apache-2.0
"""Train with three learning rates at the same time: a mapped task group, and in it a session, which is a TPU, for each.

The values are known when the DAG runs. A failed one fails the DAG run and leaves the others alone.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task, task_group

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

with DAG(
    dag_id="three_learning_rates", schedule=None, params=train_params(), deadline=deadline_alerts(), doc_md=__doc__
) as dag:

    @task
    def rates() -> list[str]:
        """What to try; a query, say."""
        return [f"--learning-rate {rate}" for rate in (0.1, 0.01, 0.001)]

    @task
    def best(results: list[dict[str, Any]]) -> str:
        """Choose among what all have reported in ``metrics.json``."""
        return str(max(results, key=lambda one: one["metrics"]["accuracy"])["uri"])

    @task_group
    def one(arguments: str) -> Any:
        """A TPU for one of them."""
        with tpu_session(conf="{{ params | tojson }}") as session:
            train = CloudTPUTrainOperator(task_id="train", changes={"arguments": arguments}, **session.arguments)
            copy = CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)
            train >> copy
        return copy.output

    best(one.expand(arguments=rates()))
