# SPDX-License-Identifier: Apache-2.0
"""What the operators share: connections, the run's key, waits that end in the worker or move to a trigger."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow_tpu import settings
from airflow_tpu.core.run.trigger_context import TRIGGER_CONTEXT_FORM, TriggerContext
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.operators.reporting import ReportingOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.clients.log_groups import Log
    from airflow_tpu.core.request.run_dates import RunDates
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.run_context import RunContext
    from airflow_tpu.lifecycle.waits.polling import Waiting
    from airflow_tpu.tpu_run import Conf

RETRIES = 5
"""Tries after the first of a task that is not given another number."""

ON_KILL_SECONDS = 4.0
"""A worker has 5 s after SIGTERM before it is killed, whatever ``killed_task_cleanup_time`` says (Airflow 3.3.2)."""

ASK_SECONDS = 1.5
"""How much of it the question may take whether the task was marked a success."""

LEASE_SECONDS = 1.0
"""How much of it the question may take whether a newer attempt has taken over."""


class CloudTPUBaseOperator(ReportingOperator):
    """Base of the operators of this package.

    :param conf: what to run and where, a :class:`airflow_tpu.tpu_run.TPURun`, another mapping of the fields of the
        form, or JSON text (templated).
    :param gcp_conn_id: connection of type ``google_cloud_platform`` (templated).
    :param ssh_conn_id: connection of type ``ssh`` with user and private key of the TPU VMs (templated).
    :param impersonation_chain: service account to impersonate, empty for none (templated).
    :param deferrable: wait in the triggerer, whatever ``[operators] default_deferrable`` says (a training holds a
        worker slot for days otherwise); False waits in the worker, with the same behaviour.
    :param poll_interval: seconds between two looks at the API; all waits of a process share them, for each zone.
    :param session: name of the session whose TPU it uses; :func:`airflow_tpu.task_groups.tpu_session` gives it in its
        *arguments*. Empty for the session without a name.
    """

    template_fields: Sequence[str] = ("conf", "gcp_conn_id", "ssh_conn_id", "impersonation_chain")
    template_fields_renderers: ClassVar[dict[str, str]] = {"conf": "json"}
    ui_color = "#e8f0fe"
    default_retries: ClassVar[int] = RETRIES

    def __init__(  # noqa: PLR0913 - keyword arguments of a task, each with a default but one
        self,
        *,
        conf: Conf,
        gcp_conn_id: str = "google_cloud_default",
        ssh_conn_id: str = "tpu_ssh_default",
        impersonation_chain: str = "",
        deferrable: bool = True,
        poll_interval: float = 3.0,
        session: str = "",
        **kwargs: Any,
    ) -> None:
        if "retries" not in kwargs:
            # An API that stumbles must not end a run, nor must a wrong field be tried again: the error decides.
            kwargs["retries"] = self.default_retries
            kwargs.setdefault("retry_delay", dt.timedelta(seconds=settings.retry_seconds()))
        super().__init__(**kwargs)
        check_names(conf)
        # As rendered when the task runs: whatever only the running task knows has its value by then.
        self.conf: Any = conf
        self.gcp_conn_id = gcp_conn_id
        self.ssh_conn_id = ssh_conn_id
        self.impersonation_chain = impersonation_chain
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.session = session

    def run_context(self, context: Context) -> RunContext:
        """The run of the running task, through this operator's connections."""
        from airflow_tpu.lifecycle.connections import Connections
        from airflow_tpu.lifecycle.run_context import GrantContext, RunContext
        from airflow_tpu.lifecycle.sharing.identity import this_airflow

        connections = Connections(self.gcp_conn_id, self.ssh_conn_id, self.impersonation_chain)
        key = run_key(context, this_airflow(GrantContext(connections)), self.session)
        run = RunContext(key, self.asked(), connections, dates=run_dates(context)).of_training(self.training)
        return run.in_bundle(getattr(context["ti"], "bundle_instance", None))  # dag.test() has none

    @property
    def training(self) -> str:
        """Name of the training that the task runs, empty if it runs none."""
        return ""

    def asked(self) -> str | Mapping[str, Any]:
        """What is asked for, as rendered."""
        found: str | Mapping[str, Any] = self.conf
        return found

    def waiting(self) -> Waiting:
        """How this task waits: briefly in its worker, or to the end when it may not defer."""
        from airflow_tpu.lifecycle.waits.polling import Waiting

        return Waiting(self.poll_interval, settings.inline_seconds() if self.deferrable else None)

    def trigger_context(
        self,
        key: RunKey,
        token: str,
        until: dt.datetime,
        since: dt.datetime | None = None,
        closes: dt.datetime | None = None,
    ) -> dict[str, Any]:
        """What a trigger of this task needs to know, as JSON.

        :param key: whose TPU.
        :param token: of this attempt; ``on_kill`` deletes only what carries it.
        :param until: when the wait is given up.
        :param since: when it began, None for when the trigger does.
        :param closes: give up if the TPU is not READY by then; None: never.
        """
        carried = TriggerContext(
            key=key,
            token=token,
            gcp_conn_id=self.gcp_conn_id,
            ssh_conn_id=self.ssh_conn_id,
            impersonation_chain=self.impersonation_chain,
            poll=self.poll_interval,
            until=until.timestamp(),
            event_after=time.time() + settings.event_hold_seconds(),
            since=since.timestamp() if since else 0.0,
            closes=closes.timestamp() if closes else 0.0,
        )
        return TRIGGER_CONTEXT_FORM.to_json(carried)


class FencedOperator(CloudTPUBaseOperator):
    """An operator that owns a TPU while it runs: ended by a person, it deletes what carries its token.

    :param cancel_on_kill: delete the TPU when the task is ended from outside.
    """

    def __init__(self, *, cancel_on_kill: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cancel_on_kill = cancel_on_kill
        self._fence: tuple[RunContext, RunRecord] | None = None

    def armed(self, context: Context) -> tuple[RunContext, RunRecord]:
        """The run and its lease; from here on ``on_kill`` knows what to delete.

        :raises LeaseLost: the run has no lease.
        """
        run = self.run_context(context)
        record = run.stores.runs.read(run.key)
        self.arm(run, record)
        return run, record

    def arm(self, run: RunContext, record: RunRecord) -> None:
        """From here on ``on_kill`` deletes what this attempt has made; the connection is read while there is time."""
        _ = run.clients.tpu.endpoint
        self._fence = (run, record)

    def on_kill(self) -> None:
        """Ask for the delete, once, without waiting for its end: teardown and reaper do the rest."""
        if self._fence is None or not self.cancel_on_kill:
            return
        run, record = self._fence
        in_thread(lambda: self._abandon_unless_done(run, record), ON_KILL_SECONDS)

    def _abandon_unless_done(self, run: RunContext, record: RunRecord) -> None:
        """A task that was marked a success leaves its TPU, and what is on it, to the tasks after it."""
        from airflow.sdk.exceptions import AirflowRuntimeError

        from airflow_tpu.clients.airflow_state import task_state
        from airflow_tpu.lifecycle.release import abandon

        async def ask() -> str | None:
            return await asyncio.wait_for(asyncio.to_thread(task_state, record.key, self.task_id), ASK_SECONDS)

        state = None
        # The signal may have come in the middle of a question to Airflow; then there is no answer to another one.
        with contextlib.suppress(TimeoutError, OSError, AirflowRuntimeError):
            state = asyncio.run(ask())
        if state == "success":
            self.log.warning("marked a success: the TPU of %s is left to the tasks after this", record.key.name)
            return
        self.log.warning("ended from outside: asking for the TPU of %s to be deleted", record.key.name)
        abandon(run, record.lease.token, LEASE_SECONDS)


def skip(log: Log, reason: str, cause: Exception | None = None) -> NoReturn:
    """Skip the running task, and say why where a person sees it: Airflow 3.3 says it in a group that is folded.

    :raises AirflowSkipException: always.
    """
    from airflow.sdk.exceptions import AirflowSkipException

    log.info("skipped: %s", reason)
    raise AirflowSkipException(reason) from cause


def check_names(conf: Conf) -> None:
    """Refuse a name that is no field while the DAG file is parsed; values are checked when a task runs.

    :raises ConfigError: with every such name, and the place it belongs in.
    """
    if not isinstance(conf, Mapping) or not conf:
        return
    from airflow_tpu.core.request.form_fields import FORM
    from airflow_tpu.core.request.unknown_fields import unknown_field
    from airflow_tpu.errors import ConfigError

    if faults := [unknown_field(name, FORM) for name in conf if name not in FORM]:
        raise ConfigError(faults, "conf")


def in_thread(work: Callable[[], object], seconds: float) -> None:
    """Run something beside an event loop that may be running already (a signal interrupts it at any point)."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


def run_dates(context: Context) -> RunDates:
    """Dates of the running task's DAG run; one that a person has triggered without a logical date has none."""
    from airflow_tpu.core.request.run_dates import RunDates

    run = context["dag_run"]
    return RunDates(run.logical_date, run.data_interval_start, run.data_interval_end)


def run_key(context: Context, airflow: str, session: str = "") -> RunKey:
    """Key of the running task: every task of the session derives the same names from it.

    :param context: Airflow's.
    :param airflow: identity of this Airflow.
    :param session: name of the session.
    """
    instance = context["ti"]
    index = instance.map_index
    return RunKey(airflow, instance.dag_id, instance.run_id, -1 if index is None else index, session)
