"""Train a script on a TPU that the grant covers, keep its artifacts, delete the TPU, report what was free."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
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
    # A leaf of its own: the teardown and the report succeed after a failed training, the run must not.
    verdict = EmptyOperator(task_id="verdict")

    check_grant >> session.setup
    session.delete >> report
    [copy, session.delete] >> verdict
