"""Every night: train on what has changed, promote the model only if it beats the champion on the same examples.

Skipped (green, and its log says why): nothing has changed since the newest version; no TPU within four hours; the new
model is not better. A failure is sent to the recipients in `[airflow_tpu] failure_notifiers`.
The promotion emits the asset `tpu-model-digits`; its extra is the model's manifest.
"""

from __future__ import annotations

from airflow.sdk import DAG, Asset, CronTriggerTimetable

from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.notify import failure_notices
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.grant import CloudTPUCheckGrantOperator
from airflow_tpu.operators.ledger import CloudTPUUsageReportOperator
from airflow_tpu.operators.model import CloudTPUPromoteModelOperator, CloudTPUSkipUnchangedOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

MODEL = "digits"
WINDOW_HOURS = 4
CONF = "{{ params | tojson }}"

with DAG(
    dag_id="tpu_nightly_retrain",
    schedule=CronTriggerTimetable("15 2 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,  # whatever Airflow's default is: copying a file creates no TPU
    params=train_params(model=MODEL, start_within_hours=WINDOW_HOURS),
    deadline=deadline_alerts(),
    on_failure_callback=failure_notices(),
    tags=["tpu"],
    doc_md=__doc__,
) as dag:
    changed = CloudTPUSkipUnchangedOperator(task_id="changed", conf=CONF)
    check_grant = CloudTPUCheckGrantOperator(task_id="check_grant", conf=CONF)
    with tpu_session(conf=CONF) as session:
        train = CloudTPUTrainOperator(task_id="train", **session.arguments)
        copy = CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)
        train >> copy
    promote = CloudTPUPromoteModelOperator(
        task_id="promote",
        conf=CONF,
        artifacts_uri="{{ ti.xcom_pull(task_ids='copy')['uri'] }}",
        fingerprint="{{ ti.xcom_pull(task_ids='changed') }}",
        metric="test_accuracy",
        keep_versions=10,
        outlets=[Asset(f"tpu-model-{MODEL}")],
    )
    report = CloudTPUUsageReportOperator(task_id="report", conf=CONF, trigger_rule="all_done_min_one_success")

    changed >> check_grant >> session.setup
    session.delete >> report
    [copy, session.delete] >> promote
    [promote, report] >> session.verdict
