# SPDX-License-Identifier: Apache-2.0
"""A user's own DAG that starts trainings: one task for each form."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG

FORMS: dict[str, dict[str, Any]] = {
    "number-as-text": {"seed": "3"},
    "empty-number": {"seed": ""},
    "no-number": {"seed": None},
    "whole-fraction": {"seed": 3.0},
    "empty-text": {"script": ""},
    "no-optional-text": {"arguments": None},
    "unknown-field": {"sed": 3},
}

with DAG(dag_id="starts_trainings", schedule=None) as dag:
    for name, form in FORMS.items():
        TriggerDagRunOperator(
            task_id=name, trigger_dag_id="tpu_train", trigger_run_id=f"operator-{name}", conf=form, retries=0
        )
