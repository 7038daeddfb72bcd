# SPDX-License-Identifier: Apache-2.0
"""A DAG with the trigger form and no task."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_tpu.params import train_params

with DAG(dag_id="form_only", schedule=None, params=train_params()):
    pass
