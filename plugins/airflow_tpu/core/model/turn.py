# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to train a model: of the nights of a backfill, one at a time."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from airflow_tpu.core import json_form


@dataclass(frozen=True)
class Turn:
    """The right of one DAG run to train a model.

    Airflow counts the runs of a backfill apart from all others, so ``max_active_runs`` of the DAG does not hold them.

    :param airflow: identity of the Airflow of that run.
    :param dag_id: its DAG.
    :param run_id: its DAG run.
    :param until: when the turn ends if nobody can say whether that run is over.
    """

    airflow: str
    dag_id: str
    run_id: str
    until: dt.datetime

    def is_of(self, other: Turn) -> bool:
        """Whether both are of the same DAG run."""
        return (self.airflow, self.dag_id, self.run_id) == (other.airflow, other.dag_id, other.run_id)

    def __str__(self) -> str:
        return f"{self.run_id} of {self.dag_id}"


TURN_FORM = json_form.StoredForm("turn to train a model", Turn)
