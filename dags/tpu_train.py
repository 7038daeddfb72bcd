# SPDX-License-Identifier: Apache-2.0
"""Train a script on a TPU that the grant covers, keep its artifacts, delete the TPU, report what was free.

| task | does |
|---|---|
| `check_grant` | refuses what the grant does not cover, with every reason at once |
| `lease`, `create` | take the run's TPU and wait until it answers; the wait for capacity holds no worker |
| `train` | runs the script; the log has what it prints, a TPU that is taken away is replaced, and the script resumes |
| `copy` | verifies the artifacts in the bucket |
| `delete` | deletes the TPU, whatever has happened, and waits until it is gone |
| `report` | chip-hours, what they would have cost, and what is not free |
| `verdict` | makes a run in which a task has failed a failed run |

The pages of TPU and artifacts are *Extra Links* in the details of a task; all TPUs are in *Browse, TPU usage*.
To stop a run mark `train` as failed: its TPU is deleted. To continue, clear `train`.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.grant import CloudTPUCheckGrantOperator
from airflow_tpu.operators.ledger import CloudTPUUsageReportOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

CONF = "{{ params | tojson }}"

with DAG(
    dag_id="tpu_train",
    schedule=None,
    catchup=False,
    max_active_runs=4,
    params=train_params(),
    deadline=deadline_alerts(),
    tags=["tpu"],
    doc_md=__doc__,
) as dag:
    check_grant = CloudTPUCheckGrantOperator(task_id="check_grant", conf=CONF)
    with tpu_session(conf=CONF) as session:
        train = CloudTPUTrainOperator(task_id="train", **session.arguments)
        copy = CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)
        train >> copy
    report = CloudTPUUsageReportOperator(task_id="report", conf=CONF, trigger_rule="all_done")

    check_grant >> session.setup
    session.delete >> report >> session.verdict
