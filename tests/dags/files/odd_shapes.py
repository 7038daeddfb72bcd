# SPDX-License-Identifier: Apache-2.0
"""DAGs that nobody has drawn for us: sessions below, around and between the other things that Airflow offers."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup, TriggerRule, task, task_group

from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
from airflow_tpu.task_groups import tpu_session
from airflow_tpu.tpu_run import TPURun

FORM = "{{ params | tojson }}"
BETWEEN = "TEST_ODD_SHAPES_BETWEEN"
"""Environment variable with the folder in which a task says that it is there, and finds when it may end."""


@task.short_circuit
def never() -> bool:
    """Nothing below is wanted today."""
    return False


with DAG("nothing_wanted", schedule=None, params=train_params()) as nothing_wanted:
    with tpu_session(conf=FORM) as session:
        CloudTPUTrainOperator(task_id="train", **session.arguments)
    never() >> session.setup

with DAG("nothing_trained", schedule=None, params=train_params()) as nothing_trained, tpu_session(conf=FORM) as session:
    train = CloudTPUTrainOperator(task_id="train", **session.arguments)
    never() >> train >> CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)

with DAG("own_setups", schedule=None, params=train_params()) as own_setups:
    outer = EmptyOperator(task_id="start_server").as_setup()
    with tpu_session(conf=FORM) as session:
        inner = EmptyOperator(task_id="mount").as_setup()
        train = CloudTPUTrainOperator(task_id="train", **session.arguments)
        inner >> train >> EmptyOperator(task_id="unmount").as_teardown(setups=inner)
        train >> EmptyOperator(task_id="in_any_case", trigger_rule=TriggerRule.ALL_DONE)
    outer >> session.setup
    session.verdict >> EmptyOperator(task_id="stop_server").as_teardown(setups=outer)

with DAG("deep_in_groups", schedule=None, params=train_params()) as deep_in_groups:

    @task
    def values(count: str) -> list[int]:
        """As many as the arguments of the form say."""
        return list(range(int(count or 0)))

    with TaskGroup("week"), TaskGroup("day"):

        @task_group
        def one(seed: int) -> None:
            """A session for each value, with a group of the user's own around its training."""
            run = TPURun(script="{{ params.script }}", provisioning="node", seed=seed)
            with tpu_session(conf=run, group_id="tpu") as session, TaskGroup("work"):
                CloudTPUTrainOperator(task_id="train", **session.arguments)

        mapped = one.expand(seed=values("{{ params.arguments }}"))
    mapped >> EmptyOperator(task_id="after", trigger_rule=TriggerRule.ALL_DONE)

with DAG("tried_again", schedule=None, params=train_params()) as tried_again, tpu_session(conf=FORM) as session:
    CloudTPUTrainOperator(task_id="train", retries=1, retry_delay=timedelta(0), **session.arguments)

with DAG("waits_an_hour", schedule=None, params=train_params()) as waits_an_hour, tpu_session(conf=FORM) as session:
    train = CloudTPUTrainOperator(task_id="train", retries=1, retry_delay=timedelta(hours=1), **session.arguments)
    train >> EmptyOperator(task_id="afterwards")

with DAG("in_a_row", schedule=None, params=train_params()) as in_a_row, tpu_session(conf=FORM) as session:

    @task(trigger_rule=TriggerRule.ALL_DONE)
    def between() -> None:
        """Say that it is there, and wait until it may end."""
        if BETWEEN in os.environ:
            here, may_end = (Path(os.environ[BETWEEN], name) for name in ("here", "may-end"))
            here.touch()
            while not may_end.exists():
                time.sleep(0.05)

    first = CloudTPUTrainOperator(task_id="first", **session.arguments)
    second = CloudTPUTrainOperator(
        task_id="second", changes={"arguments": "second"}, trigger_rule=TriggerRule.ALL_DONE, **session.arguments
    )
    first >> between() >> second >> CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)
