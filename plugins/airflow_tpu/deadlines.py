"""The deadline that no teardown can miss: Airflow calls it in the triggerer, for paused and timed-out runs as well.

A run's own deadline is in its lease, since a person may choose any number of hours; Airflow's alerts have fixed
intervals. So there is a ladder of alerts, and each one that fires looks into the lease.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from airflow_tpu.core.tpu.labels import RunKey

if TYPE_CHECKING:
    from airflow_tpu.stores.runs import RunStore

log = logging.getLogger(__name__)

LADDER = tuple(dt.timedelta(hours=hours) for hours in (1, 6, 12, 24, 48, 96, 24 * 7, 24 * 14, 24 * 30))
SLACK = dt.timedelta(minutes=10)
"""What teardown and worker may take after the deadline before this steps in."""


def deadline_alerts(gcp_conn_id: str = "google_cloud_default") -> list[DeadlineAlert]:
    """Alerts for a DAG that owns a TPU.

    The interval is a number of seconds, which Airflow reads as well as a ``timedelta``: with the latter Airflow 3.3.2
    answers every *Clear* of a task with an error 500, as long as an alert is due (``models/taskinstance.py``,
    ``_recalculate_dagrun_queued_at_deadlines``, counts with what is stored, and a ``timedelta`` is a mapping there).

    :param gcp_conn_id: connection for the Cloud TPU API and Cloud Storage.
    """
    return [
        DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=(interval + SLACK).total_seconds(),  # type: ignore[arg-type]  # annotated for a timedelta
            callback=AsyncCallback(f"{__name__}.end_overdue", {"gcp_conn_id": gcp_conn_id}),
        )
        for interval in LADDER
    ]


async def end_overdue(gcp_conn_id: str, context: Mapping[str, Any]) -> str:
    """Delete what a run still holds after its own deadline; by the TPU's own label where the lease cannot be read.

    :param gcp_conn_id: connection to use.
    :param context: Airflow's context of the alert; the DAG run in it is what the REST API answers (``dag_run_id``).
    :return: what was done, in words.
    """
    from airflow_tpu.clients.endpoints import cloud_failures
    from airflow_tpu.hooks.tpu import CloudTPUAsyncHook
    from airflow_tpu.lifecycle.incarnation_end import noted
    from airflow_tpu.lifecycle.project_snapshot import look_again, own_names, take_census
    from airflow_tpu.lifecycle.release import delete_seen

    run = context["dag_run"]
    key = RunKey(run["dag_id"], run["dag_run_id"])
    try:
        runs = await asyncio.to_thread(_runs, gcp_conn_id)
        record = await asyncio.to_thread(runs.find, key)
    except cloud_failures():
        log.exception("the lease of %s cannot be read: its TPU's label decides", key.name)
        return await _end_by_label(key, gcp_conn_id)
    if record is None:
        return f"{key.name} holds no lease: nothing to end"
    if record.lease.expires_at > dt.datetime.now(dt.UTC):
        return f"{key.name} may go on until {record.lease.expires_at}"
    log.warning("%s has passed its deadline %s: deleting its TPU", key.name, record.lease.expires_at)
    async with await CloudTPUAsyncHook(gcp_conn_id=gcp_conn_id).client() as client:
        census = await look_again(client, await take_census(client), own_names(client, record))
        done = await delete_seen(client, census, key)
    await asyncio.to_thread(runs.amend, key, lambda now: noted(now, done.endings))
    done.check()
    return f"{key.name} has passed its deadline; deleting {', '.join(end.node_id for end in done.endings) or 'nothing'}"


async def _end_by_label(key: RunKey, gcp_conn_id: str) -> str:
    from airflow_tpu.core.run.expiry import condemn
    from airflow_tpu.hooks.tpu import CloudTPUAsyncHook
    from airflow_tpu.lifecycle.project_snapshot import take_census
    from airflow_tpu.lifecycle.release import delete_seen

    async with await CloudTPUAsyncHook(gcp_conn_id=gcp_conn_id).client() as client:
        census = await take_census(client)
        if not condemn(census.all_ours(key), None, dt.datetime.now(dt.UTC)):
            return f"nothing of {key.name} has passed the expiry on its label"
        done = await delete_seen(client, census, key)
    done.check()
    return f"{key.name} has passed the expiry on its label; deleting {', '.join(end.node_id for end in done.endings)}"


def _runs(gcp_conn_id: str) -> RunStore:
    from airflow_tpu.hooks.artifacts import ArtifactsHook
    from airflow_tpu.stores.grants import load_grant, store_root
    from airflow_tpu.stores.runs import RunStore

    return RunStore(ArtifactsHook(gcp_conn_id), store_root(load_grant()))
