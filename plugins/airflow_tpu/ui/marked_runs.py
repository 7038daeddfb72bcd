# SPDX-License-Identifier: Apache-2.0
"""What a person says of a whole DAG run, kept where its verdict finds it.

*Mark failed* and *Mark success* on a DAG run leave the same states behind in Airflow 3.3.2 when no task of the run is
running or deferred: all tasks to come are skipped, and the teardowns decide. Only its listeners are told which of the
two it was. So this one, in the API server, leaves a word at the leases of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from airflow_tpu.clients.airflow_state import FAILED, MARKED_KEY, SUCCESS

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

LEASES = "CloudTPULeaseOperator"
"""Name of the operator at whose tasks the word is left: each session has one, and it does not run again by itself."""

BY_PERSON = "manually set"
"""What Airflow tells its listeners of a state that a person has set, and of no other."""


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """A DAG run has failed, perhaps because a person says so."""
    keep_word(dag_run, msg, FAILED)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """A DAG run has succeeded, perhaps because a person says so."""
    keep_word(dag_run, msg, SUCCESS)


def keep_word(dag_run: DagRun, msg: str, word: str) -> None:
    """Leave a word at each lease of the run, in the transaction that changes the states; the later word counts.

    :param dag_run: as Airflow gives it to a listener.
    :param msg: what Airflow says with it.
    :param word: the state that a person has set.
    """
    if BY_PERSON not in msg:
        return
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return
    dag_id, run_id = dag_run.dag_id, dag_run.run_id
    leases = select(TaskInstance.task_id, TaskInstance.map_index).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.operator == LEASES
    )
    for task_id, map_index in session.execute(leases).all():
        XComModel.set(
            MARKED_KEY,
            word,
            dag_id=dag_id,
            task_id=task_id,
            run_id=run_id,
            map_index=map_index,
            serialize=False,  # a text is its own JSON form, and the task that reads it expects that
            session=session,
        )
