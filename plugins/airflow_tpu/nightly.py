# SPDX-License-Identifier: Apache-2.0
"""The nightly retraining of a model as a DAG: train on what has changed, promote only what is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from airflow_tpu.core.request.paths import model_name
from airflow_tpu.deadlines import deadline_alerts
from airflow_tpu.notify import failure_notices
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.grant import CloudTPUCheckGrantOperator
from airflow_tpu.operators.ledger import CloudTPUUsageReportOperator
from airflow_tpu.operators.model import CloudTPUPromoteModelOperator, CloudTPUSkipUnchangedOperator, model_asset
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

if TYPE_CHECKING:
    from airflow.sdk import Param
    from airflow.sdk.definitions.dag import ScheduleArg

    from airflow_tpu.tpu_run import TPURun

WINDOW_HOURS = 4
"""Hours within which a night has to have a TPU, unless its run says otherwise."""

FORM = "{{ params | tojson }}"
DOC = """Every night: train on what has changed, promote `{model}` only if it beats the champion on the same examples.

Skipped (green, and the log of the skipped task says why): nothing has changed since the newest version; no TPU in time;
the new model is not better by `{metric}`. A failure is sent to the recipients in `[airflow_tpu] failure_notifiers`.
The promotion emits the asset `{asset}`; its extra is the model's manifest. A model that is typed into the form at
*Trigger* has a champion, versions and an asset of its own.
"""


def nightly_dag(  # noqa: PLR0913 - keyword arguments that a DAG file names
    run: TPURun,
    *,
    schedule: ScheduleArg,
    metric: str,
    higher_is_better: bool | None = None,
    min_improvement: float = 0.0,
    keep_versions: int = 10,
    dag_id: str = "",
) -> DAG:
    """Return the DAG that trains a model again when data, code or settings have changed.

    Champion, versions and asset (``tpu-model-NAME``) follow the field ``model``. The fields of the run are the defaults
    of the DAG's form. One run at a time, no catch-up; it begins paused.

    :param run: what to train, with the name of the ``model``; ``start_within_hours`` is 4 unless it says otherwise.
    :param schedule: when, as for every DAG of Airflow's.
    :param metric: name of the metric in ``result.json`` that decides.
    :param higher_is_better: direction of the metric; None takes what the script reports with it.
    :param min_improvement: how much better than the champion a version must be, in the metric's own unit.
    :param keep_versions: versions that stay, with their artifacts; 0 keeps all.
    :param dag_id: by default ``tpu_nightly_`` and the model's name.
    :raises ConfigError: the run names no model or has an unknown field, which fails the DAG's import.
    """
    model = _model(run)
    with DAG(
        dag_id=dag_id or f"tpu_nightly_{model.replace('-', '_')}",
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=True,  # whatever Airflow's default is: copying a file creates no TPU
        params=_form(run),
        deadline=deadline_alerts(),
        on_failure_callback=failure_notices(),
        tags=["tpu"],
        doc_md=DOC.format(model=model, metric=metric, asset=model_asset(model)),
    ) as dag:
        bar = {"metric": metric, "higher_is_better": higher_is_better, "min_improvement": min_improvement}
        _tasks({**bar, "keep_versions": keep_versions})
    return dag


def _form(run: TPURun) -> dict[str, Param]:
    shown: TPURun = {"start_within_hours": WINDOW_HOURS, **run}
    return train_params(**shown)


def _model(run: TPURun) -> str:
    from airflow_tpu.core.request.fields import Invalid, fault_of
    from airflow_tpu.errors import ConfigError

    try:
        return model_name(run.get("model", ""))
    except Invalid as error:
        raise ConfigError([fault_of("model", run.get("model"), error)], "the nightly retraining") from error


def _tasks(promotion: dict[str, Any]) -> None:
    changed = CloudTPUSkipUnchangedOperator(task_id="changed", conf=FORM)
    check_grant = CloudTPUCheckGrantOperator(task_id="check_grant", conf=FORM)
    with tpu_session(conf=FORM) as session:
        train = CloudTPUTrainOperator(task_id="train", **session.arguments)
        copy = CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)
        train >> copy
    promote = CloudTPUPromoteModelOperator(
        task_id="promote",
        conf=FORM,
        artifacts_uri="{{ ti.xcom_pull(task_ids='copy')['uri'] }}",
        fingerprint="{{ ti.xcom_pull(task_ids='changed') }}",
        **promotion,
    )
    report = CloudTPUUsageReportOperator(task_id="report", conf=FORM, trigger_rule="all_done_min_one_success")

    changed >> check_grant >> session.setup
    session.delete >> report
    [copy, session.delete] >> promote
    [promote, report] >> session.verdict
