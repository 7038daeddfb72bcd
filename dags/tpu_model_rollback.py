# SPDX-License-Identifier: Apache-2.0
"""Make a former version of a model the champion again: the one before, or the one that is named.

Nothing is deleted and no TPU is used: one small object in the bucket, which names the champion, is replaced.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_tpu.operators.model import CloudTPURollBackModelOperator

with DAG(
    dag_id="tpu_model_rollback",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params={
        "model": Param(
            "digits",
            type="string",
            minLength=1,
            title="Model",
            description="The name that the training DAG was given, under which results compete.",
        ),
        "version": Param(
            None, type=["null", "string"], title="Version", description="Empty: the champion before this one."
        ),
    },
    tags=["tpu"],
    doc_md=__doc__,
) as dag:
    CloudTPURollBackModelOperator(
        task_id="roll_back", model="{{ params.model }}", version="{{ params.version or '' }}", retries=2
    )
