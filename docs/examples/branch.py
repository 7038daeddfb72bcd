# SPDX-License-Identifier: Apache-2.0
"""Choose between two trainings: only one of them runs, on the one TPU of the session, and one copy serves both."""

from __future__ import annotations

from airflow.sdk import DAG, task

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

with (
    DAG(dag_id="branch", schedule=None, params=train_params(), deadline=deadline_alerts(), doc_md=__doc__) as dag,
    tpu_session(conf="{{ params | tojson }}") as session,
):

    @task.branch
    def choose(seed: int) -> str:
        """Decide by whatever you like."""
        return "quick" if int(seed) % 2 else "thorough"

    quick = CloudTPUTrainOperator(task_id="quick", changes={"arguments": "--steps 100"}, **session.arguments)
    thorough = CloudTPUTrainOperator(task_id="thorough", changes={"arguments": "--steps 900"}, **session.arguments)
    copy = CloudTPUArtifactsToGCSOperator(
        task_id="copy", trigger_rule="none_failed_min_one_success", **session.arguments
    )
    choose("{{ params.seed }}") >> [quick, thorough] >> copy
