# SPDX-License-Identifier: Apache-2.0
"""What create and train share: ensure the TPU, wait in the worker, then in a trigger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_tpu.consequences import MAY_LIVE
from airflow_tpu.core import json_form
from airflow_tpu.core.ledger.events import TimeSource
from airflow_tpu.core.request.form_fields import MAX_PREEMPTIONS
from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.run.trigger_context import raise_for
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import TPUError, WindowClosed
from airflow_tpu.operators.base import FencedOperator, skip
from airflow_tpu.operators.reporting import reported

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.capacity import Step
    from airflow_tpu.lifecycle.ensure_tpu import OnItsWay, Ready
    from airflow_tpu.lifecycle.run_context import RunContext


INFRASTRUCTURE_RETRIES = MAX_PREEMPTIONS + 50
"""Airflow's own limit of the tries of a task that needs the TPU. It never decides: our budget does, and Airflow counts
some tries by itself."""


class CloudTPUProvisionOperator(FencedOperator):
    """Ensure that the run's TPU exists and can be logged in to, then continue with :meth:`on_ready`.

    A run whose window (``start_within_hours``) closes before its first TPU was READY gives back what it asked for and
    is skipped.
    """

    consequence = MAY_LIVE
    default_retries = INFRASTRUCTURE_RETRIES

    @reported
    def execute(self, context: Context) -> Any:
        """Adopt or create the TPU; wait for it."""
        from airflow_tpu.lifecycle.ensure_tpu import ensure_tpu
        from airflow_tpu.lifecycle.training.losses import with_lost_work

        run, record = self.armed(context)
        try:
            found = ensure_tpu(run, with_lost_work(run, record), self.waiting())
        except WindowClosed as error:
            self._skip(error)
        return self._continue(context, run, record, found)

    @reported
    def execute_ready(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Continue after the trigger has seen the TPU ready (or fail)."""
        from airflow_tpu.lifecycle.ensure_tpu import ReadySince, arrived, recover

        run, record = self.armed(context)
        try:
            good = raise_for(event)
            node, ready_at = ResourceName.parse(good["node"]), dt.datetime.fromisoformat(good["ready_at"])
            since = ReadySince(node, ready_at, TimeSource(good["source"]), tuple(good["host_keys"]))
            found: Ready | OnItsWay | Step = arrived(run, record, since)
        except TPUError as error:
            try:
                found = recover(run, record, error, self.waiting())
            except WindowClosed as closed:
                self._skip(closed)
        return self._continue(context, run, record, found)

    @reported
    def execute_again(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Ask once more after a wait for capacity."""
        raise_for(event)
        return self.execute(context)

    def on_ready(self, context: Context, run: RunContext, found: Ready) -> Any:
        """Use the TPU.

        :param context: of the running task.
        :param run: clients and stores.
        :param found: the TPU, and this attempt's lease.
        """
        raise NotImplementedError

    def _continue(self, context: Context, run: RunContext, record: RunRecord, found: Ready | OnItsWay | Step) -> Any:
        """Use the TPU, or leave the wait for it, or for capacity, to the triggerer."""
        from airflow_tpu.lifecycle.ensure_tpu import OnItsWay, Ready

        if isinstance(found, Ready):
            return self.on_ready(context, run, found)
        closes = run.request.closes(record)
        if isinstance(found, OnItsWay):
            self._defer_until_ready(record, found, closes)
        self._defer_until_capacity(record, found, closes)

    def _defer_until_ready(self, record: RunRecord, found: OnItsWay, closes: dt.datetime | None) -> NoReturn:
        from airflow_tpu.triggers.tpu import CloudTPUReadyTrigger

        until = first_of(record.lease.expires_at, closes)
        self.log.info("%s is not ready yet; waiting in the triggerer until %s", found.target.node_id, until)
        watch = self.trigger_context(record.key, record.lease.token, record.lease.expires_at, found.since, closes)
        seen = found.unhealthy
        trigger = CloudTPUReadyTrigger(watch, json_form.to_json(found.target), seen.since, seen.coming)
        self.defer(trigger=trigger, method_name="execute_ready")

    def _defer_until_capacity(self, record: RunRecord, step: Step, closes: dt.datetime | None) -> NoReturn:
        from airflow_tpu.triggers.capacity import CloudTPUCapacityTrigger

        watch = self.trigger_context(record.key, record.lease.token, record.lease.expires_at, closes=closes)
        self.defer(trigger=CloudTPUCapacityTrigger(watch, step.search_json()), method_name="execute_again")

    def _skip(self, error: WindowClosed) -> NoReturn:
        skip(self.log, f"{error} Nothing is billed any more; the next run tries again.", error)
