# SPDX-License-Identifier: Apache-2.0
"""The deadline that no teardown can miss: Airflow calls it in the triggerer, for paused and timed-out runs as well.

A run's own deadline is in its lease, since a person may choose any number of hours; Airflow's alerts have fixed
intervals. So there is a ladder of alerts, and each one that fires looks into the lease.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from airflow_tpu.core.tpu.identity import VARIABLE, checked
from airflow_tpu.core.tpu.labels import RunKey

LADDER = tuple(dt.timedelta(hours=hours) for hours in (1, 6, 12, 24, 48, 96, 24 * 7, 24 * 14, 24 * 30))
SLACK = dt.timedelta(minutes=10)
"""What teardown and worker may take after the deadline before this steps in."""


def deadline_alerts(gcp_conn_id: str = "google_cloud_default") -> list[DeadlineAlert]:
    """Alerts for a DAG that owns a TPU.

    The interval is a number of seconds, which Airflow reads as well as a ``timedelta``: with the latter Airflow 3.3.2
    answers every *Clear* of a task with an error 500, as long as an alert is due (``models/taskinstance.py``,
    ``_recalculate_dagrun_queued_at_deadlines``, counts with what is stored, and a ``timedelta`` is a mapping there).

    Airflow's UI counts each alert as a deadline of the DAG, and its name says what it is; docs/faq.md says why there is
    not one alert at the hours that a person has chosen.

    :param gcp_conn_id: connection for the Cloud TPU API and Cloud Storage.
    """
    return [
        DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=(interval + SLACK).total_seconds(),  # type: ignore[arg-type]  # annotated for a timedelta
            callback=AsyncCallback(f"{__name__}.end_overdue", {"gcp_conn_id": gcp_conn_id}),
            name=f"After {interval / dt.timedelta(hours=1):g} h: delete the TPU if deadline_hours have passed",
        )
        for interval in LADDER
    ]


async def end_overdue(gcp_conn_id: str, context: Mapping[str, Any]) -> str:
    """Delete what a run still holds after its own deadline.

    In a thread: Cloud Storage's client would hold the triggerer's event loop.

    :param gcp_conn_id: connection to use.
    :param context: Airflow's context of the alert; the DAG run in it is what the REST API answers (``dag_run_id``).
    :return: what was done, in words.
    """
    run = context["dag_run"]
    return await asyncio.to_thread(_end_overdue, gcp_conn_id, run["dag_id"], run["dag_run_id"])


def _end_overdue(gcp_conn_id: str, dag_id: str, run_id: str) -> str:
    from airflow_tpu.clients import airflow_state
    from airflow_tpu.lifecycle.connections import Connections
    from airflow_tpu.lifecycle.release import end_overdue
    from airflow_tpu.lifecycle.run_context import GrantContext

    found = airflow_state.variable(VARIABLE)
    if found is None:
        return f"the identity of this Airflow (Variable {VARIABLE}) could not be read: {run_id} is left to the reaper"
    return end_overdue(GrantContext(Connections(gcp_conn_id)), RunKey(checked(found), dag_id, run_id))
