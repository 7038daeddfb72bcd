# SPDX-License-Identifier: Apache-2.0
"""DAGs with several sessions: beside one another, mapped, skipped; and one whose training fails in the middle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task, task_group

from airflow_tpu.operators.ledger import CloudTPUUsageReportOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session

if TYPE_CHECKING:
    from airflow.sdk import Context

FORM = {
    "script": "hello.py",
    "accelerator_type": "v2-8",
    "zone": "us-central1-f",
    "artifacts_uri": "gs://trc-local/runs",
    "provisioning": "node",
}
NOTICES = "TEST_SESSIONS_NOTICES"
"""Environment variable with the file that the failure callback writes to."""


def notice(context: Context) -> None:
    """Say that a run has failed."""
    Path(os.environ[NOTICES]).write_text(str(context["run_id"]), encoding="utf-8")


with DAG(dag_id="many_sessions", schedule=None) as many_sessions:

    @task
    def seeds() -> list[int]:
        """Values that are known at run time only."""
        return [1, 2]

    @task_group
    def one(seed: int) -> None:
        """A TPU for each of them."""
        with tpu_session(conf={**FORM, "seed": seed}) as session:
            CloudTPUTrainOperator(task_id="train", **session.arguments)

    @task.branch
    def choose() -> str:
        """Only one of two sessions is wanted."""
        return "big.lease"

    chosen, small = choose(), one.expand(seed=seeds())
    large = {**FORM, "accelerator_type": "v5litepod-4", "zone": "us-central1-a", "tier": "spot"}
    with tpu_session(conf=large, group_id="big") as big:
        CloudTPUTrainOperator(task_id="train", **big.arguments)
    with tpu_session(conf=FORM, group_id="unwanted") as unwanted:
        CloudTPUTrainOperator(task_id="train", **unwanted.arguments)
    report = CloudTPUUsageReportOperator(task_id="report", conf={}, trigger_rule="all_done")
    chosen >> [big.setup, unwanted.setup]
    [small, big.verdict, unwanted.verdict] >> report

with DAG(
    dag_id="fails_in_the_middle", schedule=None, params=train_params(), on_failure_callback=notice
) as fails_in_the_middle:
    with tpu_session(conf="{{ params | tojson }}", group_id="only") as only:
        train = CloudTPUTrainOperator(task_id="train", **only.arguments)
        train >> EmptyOperator(task_id="whatever_happens", trigger_rule="all_done")
    only.delete >> EmptyOperator(task_id="afterwards")
