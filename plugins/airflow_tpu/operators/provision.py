"""What create and train share: ensure the TPU, wait in the worker, then in a trigger, and clean up after a failure."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowSkipException

from airflow_tpu.clients.log_groups import phase
from airflow_tpu.consequences import BEING_DELETED, LOST, MAY_LIVE, stated
from airflow_tpu.core.ledger.events import EndReason, TimeSource
from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.run.trigger_context import raise_for
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import (
    ConfigError,
    DeadlineExceeded,
    HostLost,
    LeaseLost,
    LedgerError,
    LoginRefused,
    RateLimited,
    TPUError,
    TPULost,
    TPUMaintenance,
    TPUPreempted,
    TPUStopped,
    TPUVanished,
    TransientError,
    WindowClosed,
)
from airflow_tpu.operators.base import FencedOperator, abandon

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.capacity import Step
    from airflow_tpu.lifecycle.run_context import Workbench
    from airflow_tpu.lifecycle.target import Target
    from airflow_tpu.lifecycle.wait import Arrival, Illness

_QUICK_POLL = 1.0
"""Seconds between two looks while a worker slot is held: the wait is short, so every second counts."""

_NOTHING_TOLD = (ConfigError, LedgerError, RateLimited, TransientError)
"""Errors that say nothing of the TPU: it may be well, and the run may be training on it. The next try looks again."""

_REASONS: dict[type[TPULost], EndReason] = {
    TPUPreempted: EndReason.PREEMPTED,
    TPUMaintenance: EndReason.FAILED,
    HostLost: EndReason.FAILED,
    TPUStopped: EndReason.DELETED,
}


class CloudTPUProvisionOperator(FencedOperator):
    """Ensure that the run's TPU exists and can be logged in to, then go on with :meth:`on_ready`.

    A run whose window (``start_within_hours``) closes before its first TPU was READY gives back what it asked for and
    is skipped.
    """

    _illness: Illness  # what this task has seen of a node that is not well; its trigger goes on counting from there

    @stated(MAY_LIVE)
    def execute(self, context: Context) -> Any:
        """Adopt or create the TPU; wait for it."""
        bench = self.bench(context)
        record = bench.runs.read(bench.key)
        self._require_time(record)
        self.arm(bench, record)
        closes = bench.closes(record)
        if closes is not None and closes <= dt.datetime.now(dt.UTC):
            return self._go_on(context, bench, record, WindowClosed(f"no TPU in time: the run wanted one by {closes}."))
        order = bench.order(record)  # connections and buckets are read before the event loop runs
        try:
            target, arrival = asyncio.run(self._provision(bench, record, order))
        except TPUError as error:
            return self._go_on(context, bench, record, error)
        if arrival is None:
            self._defer_until_ready(bench, record, target)
        return self._arrived(context, bench, record, arrival)

    @stated(MAY_LIVE)
    def execute_ready(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after the trigger has seen the TPU ready (or fail)."""
        bench = self.bench(context)
        record = bench.runs.read(bench.key)
        self.arm(bench, record)
        try:
            good = raise_for(event)
        except TPUError as error:
            return self._go_on(context, bench, record, error)
        node, ready = ResourceName.parse(good["node"]), dt.datetime.fromisoformat(good["ready_at"])
        record = self._remember(bench, record, node, ready, TimeSource(good["source"]))
        return self.on_ready(context, bench, record, node)

    @stated(MAY_LIVE)
    def execute_again(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Ask once more after a wait for capacity."""
        raise_for(event)
        return self.execute(context)

    def _go_on(self, context: Context, bench: Workbench, record: RunRecord, error: TPUError) -> Any:
        """Where only capacity is missing, ask elsewhere or wait in the triggerer; anything else ends the try."""
        from airflow_tpu.lifecycle.capacity import explained, next_step

        with contextlib.suppress(LeaseLost):  # then only what carries the old token is given back
            record = bench.runs.confirm(record)
        step = next_step(bench, record, error)
        if not isinstance(error, _NOTHING_TOLD):
            self._give_back(bench, record, error)
        if isinstance(error, WindowClosed):
            raise AirflowSkipException(f"{error} Nothing is billed any more; the next run tries again.") from error
        if isinstance(error, HostLost | LoginRefused):
            self._count_loss(bench, record, error)
        if step is None or (step.resume_at is not None and not self.deferrable):
            raise explained(bench, error)
        record = bench.runs.update(record, step.change)
        if step.resume_at is None:
            self.log.warning("%s: %s", step.why, error)
            return self.execute(context)
        self.log.info("%s", step.why)
        self._defer_until_capacity(bench, record, step)

    def _count_loss(self, bench: Workbench, record: RunRecord, error: TPUError) -> None:
        """A TPU that never got well, or never let us in, is a loss like any other, but no attempt without progress.

        :raises BudgetExhausted: it was one too many.
        """
        more = bench.runs.update(
            record, lambda now: replace(now, spent=replace(now.spent, losses=now.spent.losses + 1))
        )
        exhausted = more.spent.verdict(error, bench.conf.max_preemptions, checkpoints=False)
        if exhausted is not None:
            raise exhausted from error

    def _defer_until_capacity(self, bench: Workbench, record: RunRecord, step: Step) -> NoReturn:
        from airflow_tpu.triggers.capacity import CloudTPUCapacityTrigger

        watch = self.watch(record, record.lease.expires_at, bench.closes(record))
        self.defer(
            trigger=CloudTPUCapacityTrigger(watch=watch.to_json(), hunt=step.hunt_json()),
            method_name="execute_again",
        )

    def on_ready(self, context: Context, bench: Workbench, record: RunRecord, node: ResourceName) -> Any:
        """Use the TPU.

        :param context: of the running task.
        :param bench: hooks and stores.
        :param record: of the run, as this attempt knows it.
        :param node: the node.
        """
        raise NotImplementedError

    def _require_time(self, record: RunRecord) -> None:
        if record.lease.expires_at <= dt.datetime.now(dt.UTC):
            raise DeadlineExceeded(
                f"the deadline {record.lease.expires_at} of {record.key.name} has passed, so it asks for no TPU. Raise "
                "deadline_hours and start again: the run resumes from its newest checkpoint."
            )

    async def _provision(self, bench: Workbench, record: RunRecord, order: Any) -> tuple[Target, Arrival | None]:
        from airflow_tpu.lifecycle.ensure_tpu import Provisioner
        from airflow_tpu.lifecycle.reachability import arrive
        from airflow_tpu.lifecycle.wait import Illness, Pace, within

        access = bench.access
        async with bench.tpu.client() as client:
            with phase(self.log, "Ask for the TPU"):
                target = await Provisioner(client, bench.runs, bench.ledger).ensure(order, record)
            self._since, self._illness = dt.datetime.now(dt.UTC), Illness()
            poll = min(_QUICK_POLL, self.poll_interval)
            pace = Pace(poll, record.lease.expires_at, self._since, bench.closes(record))
            arriving = arrive(client, target, access, pace, self._illness)
            found = await within(self.inline_seconds(record.lease.expires_at), arriving)
        return target, found[0] if found is not None else None

    def _defer_until_ready(self, bench: Workbench, record: RunRecord, target: Target) -> NoReturn:
        from airflow_tpu.triggers.tpu import CloudTPUReadyTrigger

        watch = self.watch(record, record.lease.expires_at, bench.closes(record))
        until = first_of(watch.deadline, watch.closing)
        self.log.info("%s is not ready yet; waiting in the triggerer until %s", target.node_id, until)
        self.defer(
            trigger=CloudTPUReadyTrigger(watch.to_json(), target.to_json(), self._illness.since),
            method_name="execute_ready",
        )

    def _arrived(self, context: Context, bench: Workbench, record: RunRecord, arrival: Arrival) -> Any:
        record = self._remember(bench, record, arrival.view.name, arrival.ready_at, arrival.source)
        return self.on_ready(context, bench, record, arrival.view.name)

    def _remember(
        self, bench: Workbench, record: RunRecord, node: ResourceName, ready_at: dt.datetime, source: TimeSource
    ) -> RunRecord:
        node_id = node.id
        if record.life(node_id).ready_at is not None:
            return record
        self.log.info("%s has been READY since %s (%s)", node_id, ready_at, source)
        return bench.runs.update(
            record,
            lambda now: replace(now.with_life(node_id, ready_at=ready_at, source=source), zone=node.zone, hunt=None),
        )

    def _give_back(self, bench: Workbench, record: RunRecord, error: TPUError) -> None:
        """Delete what this attempt made."""
        if isinstance(error, TPULost):
            self.close_lost(bench, record, record.node_id, error)
        self.log.warning("no usable TPU: deleting what this attempt asked for")
        if self._clean_up(bench, record):
            error.consequence = error.consequence or BEING_DELETED

    def close_lost(self, bench: Workbench, record: RunRecord, node_id: str, error: TPULost) -> None:
        """End a lost incarnation when its loss was seen: a wait before the next try costs nothing.

        One that somebody deletes is only noted: the delete may fail, and the TPU be charged again. What is still there
        after it was given up (a silent host) is deleted, which ends it.

        :param bench: hooks and stores.
        :param record: of the run, as this attempt knows it.
        :param node_id: the incarnation.
        :param error: what has become of it.
        """
        from airflow_tpu.lifecycle.incarnation_end import Ending
        from airflow_tpu.lifecycle.release import close_ended, note_ends
        from airflow_tpu.lifecycle.training.losses import newest_checkpoint

        if error.at is not None:
            reason = _REASONS.get(type(error), EndReason.VANISHED)
            ending = Ending(node_id, error.at, reason, TimeSource.OBSERVED, newest_checkpoint(bench))
            if isinstance(error, TPUVanished):
                note_ends(bench.runs, bench.ledger, record.key, [ending])
            else:
                close_ended(bench.ledger, record, record.key, [ending])
                error.consequence = error.consequence or LOST
        elif isinstance(error, HostLost) and self._clean_up(bench, record):
            error.consequence = error.consequence or BEING_DELETED

    def _clean_up(self, bench: Workbench, record: RunRecord) -> bool:
        """Delete what this attempt asked for; False if that could not be done."""
        try:
            asyncio.run(abandon(bench, record))
        except TPUError as problem:
            self.log.warning("could not list TPUs; the task delete will: %s", problem)
            return False
        return True
