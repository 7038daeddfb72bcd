"""What the operators share: connections, the run's key, waits that end in the worker or go on in a trigger."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator

from airflow_tpu import settings
from airflow_tpu.core.run.trigger_context import Watch
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.operators.task_doc import task_doc
from airflow_tpu.retry import retry_policy

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.release import Release
    from airflow_tpu.lifecycle.run_context import Workbench

T = TypeVar("T")

RETRIES = 5
"""Tries after the first of a task that nobody gave another number."""

ON_KILL_SECONDS = 4.0
"""A worker has 5 s after SIGTERM before it is killed, whatever ``killed_task_cleanup_time`` says (Airflow 3.3.2)."""

ASK_SECONDS = 1.5
"""How much of it the question may take whether the task was marked a success."""

LEASE_SECONDS = 1.0
"""How much of it the question may take whether a newer attempt has taken over."""


class CloudTPUBaseOperator(BaseOperator):
    """Base of the operators of this package.

    :param conf: what to run and where, a mapping or JSON text
        (:class:`airflow_tpu.core.request.run_conf.RunConf`) (templated).
    :param gcp_conn_id: connection of type ``google_cloud_platform`` (templated).
    :param ssh_conn_id: connection of type ``ssh`` with user and private key of the TPU VMs (templated).
    :param impersonation_chain: service account to impersonate, empty for none (templated).
    :param deferrable: wait in the triggerer, whatever ``[operators] default_deferrable`` says (a training holds a
        worker slot for days otherwise); False waits in the worker, with the same behaviour.
    :param poll_interval: seconds between two looks at the API.
    """

    template_fields: Sequence[str] = ("conf", "gcp_conn_id", "ssh_conn_id", "impersonation_chain")
    template_fields_renderers: ClassVar[dict[str, str]] = {"conf": "json"}
    ui_color = "#e8f0fe"

    _since: dt.datetime | None = None  # when this task began to wait; its trigger goes on counting from there

    def __init__(
        self,
        *,
        conf: str | Mapping[str, Any],
        gcp_conn_id: str = "google_cloud_default",
        ssh_conn_id: str = "tpu_ssh_default",
        impersonation_chain: str = "",
        deferrable: bool = True,
        poll_interval: float = 15.0,
        **kwargs: Any,
    ) -> None:
        if "retries" not in kwargs:
            # An API that stumbles must not end a run, nor must a wrong field be tried again: the error decides.
            kwargs.update(retries=RETRIES, retry_policy=retry_policy())
            kwargs.setdefault("retry_delay", dt.timedelta(seconds=settings.retry_seconds()))
        kwargs.setdefault("doc_md", task_doc(type(self)))
        super().__init__(**kwargs)
        self.conf = conf
        self.gcp_conn_id = gcp_conn_id
        self.ssh_conn_id = ssh_conn_id
        self.impersonation_chain = impersonation_chain
        self.deferrable = deferrable
        self.poll_interval = poll_interval

    def bench(self, context: Context) -> Workbench:
        """Hooks, grant and stores of this run."""
        from airflow_tpu.lifecycle.run_context import Connections, Workbench

        connections = Connections(self.gcp_conn_id, self.ssh_conn_id, self.impersonation_chain)
        return Workbench(run_key(context), connections, self.conf)

    def watch(self, record: RunRecord, until: dt.datetime, closes: dt.datetime | None = None) -> Watch:
        """What a trigger of this task needs to know.

        :param record: of the run, as this attempt knows it.
        :param until: when the wait is given up.
        :param closes: when a TPU that is not READY is wanted no more, None for never.
        """
        return Watch(
            key=record.key,
            token=record.lease.token,
            gcp_conn_id=self.gcp_conn_id,
            ssh_conn_id=self.ssh_conn_id,
            impersonation_chain=self.impersonation_chain,
            poll=self.poll_interval,
            until=until.timestamp(),
            event_after=time.time() + settings.event_hold_seconds(),
            since=self._since.timestamp() if self._since else 0.0,
            closes=closes.timestamp() if closes else 0.0,
        )

    def inline_seconds(self, until: dt.datetime) -> float:
        """How long this task waits in the worker: briefly, or to the end when it may not defer."""
        if self.deferrable:
            return settings.inline_seconds()
        return max(1.0, (until - dt.datetime.now(dt.UTC)).total_seconds() + self.poll_interval)


class FencedOperator(CloudTPUBaseOperator):
    """An operator that owns a TPU while it runs: ended by a person, it deletes what carries its token.

    :param cancel_on_kill: delete the TPU when the task is ended from outside.
    """

    def __init__(self, *, cancel_on_kill: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cancel_on_kill = cancel_on_kill
        self._fence: tuple[Workbench, RunRecord] | None = None

    def arm(self, bench: Workbench, record: RunRecord) -> None:
        """From here on ``on_kill`` knows what to delete; the connection is read now, there is no time later."""
        _ = bench.tpu.endpoint
        self._fence = (bench, record)

    def on_kill(self) -> None:
        """Ask for the delete, once, without waiting for its end: teardown and reaper do the rest."""
        if self._fence is None or not self.cancel_on_kill:
            return
        in_thread(self._abandon_unless_done(*self._fence), ON_KILL_SECONDS)

    async def _abandon_unless_done(self, bench: Workbench, record: RunRecord) -> None:
        """A task that was marked a success leaves its TPU, and what is on it, to the tasks after it."""
        from airflow.sdk.exceptions import AirflowRuntimeError

        from airflow_tpu.clients.airflow_state import task_state

        state = None
        # The signal may have come in the middle of a question to Airflow; then there is no answer to another one.
        with contextlib.suppress(TimeoutError, OSError, AirflowRuntimeError):
            state = await asyncio.wait_for(asyncio.to_thread(task_state, record.key, self.task_id), ASK_SECONDS)
        if state == "success":
            self.log.warning("marked a success: the TPU of %s is left to the tasks after this", record.key.name)
            return
        self.log.warning("ended from outside: asking for the TPU of %s to be deleted", record.key.name)
        await abandon(bench, record, LEASE_SECONDS)


async def abandon(bench: Workbench, record: RunRecord, patience: float | None = None) -> Release:
    """Ask for everything that carries this attempt's token to be deleted, unless a newer attempt has taken over."""
    from airflow_tpu.lifecycle import release

    async with bench.tpu.client() as client:
        return await release.abandon(client, bench.runs, bench.ledger, record.key, record.lease.token, patience)


def in_thread(work: Coroutine[Any, Any, object], seconds: float) -> None:
    """Run a coroutine beside an event loop that may be running already (a signal interrupts it at any point)."""
    thread = threading.Thread(target=asyncio.run, args=(work,), daemon=True)
    thread.start()
    thread.join(seconds)


def run_key(context: Context) -> RunKey:
    """Key of the running task: every task of the run derives the same names from it."""
    instance = context["ti"]
    index = instance.map_index
    return RunKey(instance.dag_id, instance.run_id, -1 if index is None else index)
