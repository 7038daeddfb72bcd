# SPDX-License-Identifier: Apache-2.0
"""Run the user's script on the TPU: launch or attach, follow, bring home what it produced. In this order."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_tpu import protocol
from airflow_tpu.clients.log_groups import log_group
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.run.interruption import Interruption, Reached
from airflow_tpu.core.run.log_lines import LineAssembler
from airflow_tpu.core.run.plan import artifacts_uri
from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.core.tpu.commands import ssh_command, tensorboard_command
from airflow_tpu.core.tpu.outcome import final_error
from airflow_tpu.errors import (
    AcceleratorMissing,
    ArtifactsLost,
    ConnectionFailed,
    DeadlineExceeded,
    RunStalled,
    TPUError,
    TPULost,
    TPUVanished,
)
from airflow_tpu.lifecycle.release import clean_up, close_lost
from airflow_tpu.lifecycle.training.bucket_outputs import missing_outputs
from airflow_tpu.lifecycle.training.collect import Collected, collect
from airflow_tpu.lifecycle.training.follow import Follower, RunningJob
from airflow_tpu.lifecycle.training.launch import attach, launch
from airflow_tpu.lifecycle.training.losses import Ended, spend
from airflow_tpu.lifecycle.training.resumption import tell_resumption
from airflow_tpu.lifecycle.waits.loss import lost_state

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.lifecycle.run_context import RunContext
    from airflow_tpu.lifecycle.waits.polling import Waiting

log = logging.getLogger(__name__)

_SHOWN_LINES = 20
"""How much of the log an error repeats; all of it is in the task log and in the bucket."""

CATCH_UP = dt.timedelta(minutes=1)
"""How long a worker reads a log for which a triggerer is too slow, whatever ``inline_seconds`` says."""

STALLS_PER_TPU = 2
"""Stalls on one TPU after which the TPU counts as what is wrong: a device that stays busy stalls every attempt."""


@dataclass(frozen=True)
class Trained:
    """A script that has ended well, with what it produced in the bucket.

    :param attempt: its number.
    :param result: as the worker recorded it.
    """

    attempt: int
    result: RunResult


@dataclass(frozen=True)
class Listener:
    """What a task wants to know while it trains.

    :param line: gets each line of the script's log, or many as one text.
    :param artifacts: gets the URI below which the attempt's artifacts go.
    :param interruption: gets what a loss has cost, before the error that stands for it is raised.
    """

    line: Callable[[str], None]
    artifacts: Callable[[str], None]
    interruption: Callable[[Interruption], None]


class Training:
    """One try of a task to bring a run's script to its end.

    :param run: clients and stores.
    :param record: of the run, as this attempt knows it.
    :param listener: the task.
    """

    def __init__(self, run: RunContext, record: RunRecord, listener: Listener) -> None:
        self.run = run
        self.record = record
        self._listener = listener
        self._reached = Reached()
        self._ended_at: dt.datetime | None = None

    def train(self, node: ResourceName, waiting: Waiting) -> Trained | RunningJob:
        """Attach or start, follow as long as this worker may, then :meth:`finish`.

        :param node: the TPU, ready.
        :param waiting: how long this worker follows.
        :return: what came of it, or the job that a trigger follows from here on.
        :raises BudgetExhausted: it was interrupted once too often.
        :raises TPUError: how it ended otherwise; its log and files are in the bucket as far as the TPU lived.
        """
        _ = (
            self.run.clients.access,
            self.run.repository,
            self.run.secrets,
        )  # connections are read before the event loop runs
        with self._losses_counted(node.id):
            job, result = self.run.clients.tpu.run(lambda client: self._follow(client, node, waiting))
            self._listener.artifacts(self._uri(job.ref.attempt))
            return job if result is None else self._finish(result)

    def finish(self, good: Callable[[], RunResult], reached: Reached) -> Trained:
        """Continue where a trigger has followed the run to its end.

        :param good: gives the run's result, or raises how it ended otherwise.
        :param reached: how far it was.
        :raises TPUError: as :meth:`train`.
        """
        self._reached = reached
        with self._losses_counted(self.run.attempt(self.record).node_id):
            return self._finish(good())

    def follow_on(self, job: RunningJob, reached: Reached) -> Trained | RunningJob:
        """Read the log where a trigger was too slow for it, for a while; then :meth:`finish`.

        It starts nothing: this attempt is followed to its end, whatever that is.

        :param job: what the trigger has followed.
        :param reached: how far it was.
        :return: what came of it, or the job that a trigger follows from here on.
        :raises TPUError: as :meth:`train`.
        """
        _ = self.run.clients.access  # the connection is read before the event loop runs
        self._reached = reached
        until = self.run.clock.now() + CATCH_UP
        with self._losses_counted(job.node.id):
            result = self.run.clients.tpu.run(lambda client: self._followed(client, job, until))
            return job if result is None else self._finish(result)

    async def _follow(
        self, client: TPUClient, node: ResourceName, waiting: Waiting
    ) -> tuple[RunningJob, RunResult | None]:
        run, record = self.run, self.record
        with log_group(log, "Ship the script and start it"):
            job = await attach(client, run, record, node) or await launch(client, run, record, node)
        self._introduce(job)
        pause = run.clock.now() + dt.timedelta(seconds=waiting.seconds(record.lease.expires_at, run.clock.now()))
        return job, await self._followed(client, job, pause if waiting.may_defer else None)

    async def _followed(self, client: TPUClient, job: RunningJob, pause: dt.datetime | None) -> RunResult | None:
        follower = Follower(client, self.run.clients.access.login, job, self._listener.line)
        follower.reached = self._reached
        try:
            return await follower.until_finished(self.record.lease.expires_at, pause)
        finally:
            self._reached = follower.reached

    def _introduce(self, job: RunningJob) -> None:
        """What a person needs beside the log that follows."""
        uri = self._uri(job.ref.attempt)
        log.info("log in to the TPU: %s", ssh_command(job.node))
        log.info("curves, once the run has ended: %s", tensorboard_command(uri))
        log.info(
            "the log of attempt %d follows; the run is stopped at %s", job.ref.attempt, self.record.lease.expires_at
        )

    @contextlib.contextmanager
    def _losses_counted(self, node_id: str) -> Iterator[None]:
        """Every ending that is worth another attempt draws on the run's budget; once it is used up the run ends."""
        try:
            yield
        except TPUError as caught:
            error = self._named(caught)
            seen = error.at if isinstance(error, TPULost) else None
            ended = Ended(node_id, error, seen or self._ended_at or self.run.clock.now(), self._reached)
            if isinstance(error, TPULost):
                close_lost(self.run, self.record, ended)
            elif isinstance(error, RunStalled):
                self._count_stall(node_id, error)
            elif isinstance(error, AcceleratorMissing):
                log.warning("no TPU device on %s: deleting it, the next try replaces it", node_id)
                clean_up(self.run, self.record, error)
            interruption, exhausted = spend(self.run, self.record, ended) or (None, None)
            if interruption is not None:
                self._listener.interruption(interruption)
            if exhausted is not None:
                raise exhausted from error
            if error is not caught:
                raise error from caught
            raise

    def _named(self, error: TPUError) -> TPUError:
        """Name the deadline where it, and not a stranger, took the TPU away: the reaper deletes what is overdue."""
        ends = self.record.lease.expires_at
        if not isinstance(error, TPUVanished) or (error.at or self.run.clock.now()) < ends:
            return error
        return DeadlineExceeded(
            f"the deadline {ends} has passed, so the reaper, the deadline alert or the TPU itself has deleted it "
            f"({error}). Raise deadline_hours and start again: the run resumes from its newest checkpoint"
        )

    def _count_stall(self, node_id: str, error: RunStalled) -> None:
        """After a second stall on a TPU the next try begins with another one."""
        record = self.run.stores.runs.update(
            self.record, lambda now: now.with_life(node_id, stalls=now.life(node_id).stalls + 1)
        )
        stalls = record.life(node_id).stalls
        if stalls >= STALLS_PER_TPU:
            log.warning("the run has stalled %d times on %s: deleting it, the next try replaces it", stalls, node_id)
            clean_up(self.run, record, error)

    def _finish(self, result: RunResult) -> Trained:
        """Keep what was produced, whatever came of the script; then judge it."""
        run = self.run
        record = run.stores.runs.update(
            self.record,
            lambda now: self._with_result(now, result),
        )
        result = self._with_bucket(result.judged_by(record.lease.expires_at), record)
        last = run.attempt(record)
        uri = last.uri
        tell_resumption(run, result, log.info)
        error = classify_exit(result)
        if error is not None:
            self._keep(record, uri)
            self._ended_at = result.ended
            error = classify_exit(result, self._last_lines(uri)) or error
            raise final_error(error, self._loss(record)) or error
        self._bring_home(record, uri)
        log.info("attempt %d finished after %.1f s", last.number, result.seconds)
        return Trained(last.number, result)

    def _with_result(self, record: RunRecord, result: RunResult) -> RunRecord:
        ended = record.with_attempt(self.run.training, seconds=result.seconds)
        return ended.with_life(self.run.attempt(record).node_id, cause=EndReason.FINISHED)

    def _uri(self, attempt: int) -> str:
        return artifacts_uri(self.run.conf, self.run.folder, attempt)

    def _with_bucket(self, result: RunResult, record: RunRecord) -> RunResult:
        """Add what only the bucket tells: declared outputs that are not there, and a checkpoint that did not arrive."""
        if result.exit_code == 0 and result.checkpoint_durable is False and result.mirror_error:
            log.warning(
                "the last checkpoint of the run is not safe (%s)%s. The TPU is deleted next: write what you need of it "
                "to TRC_OUTPUT_DIR",
                result.mirror_error,
                "" if result.last_durable_step is None else f"; that of step {result.last_durable_step} is",
            )
        if result.exit_code != 0 or not self.run.conf.bucket_outputs:
            return result
        missing = (*result.missing_artifacts, *missing_outputs(self.run, record))
        return replace(result, missing_artifacts=missing)

    def _bring_home(self, record: RunRecord, uri: str) -> None:
        """What the run produced is in the bucket before this task ends: a TPU that goes then takes nothing along.

        Lost before that, the run is tried again like any other: it resumes from its last checkpoint and pushes anew.

        :raises TPULost: the TPU went first.
        """
        try:
            self._collect(record, uri)
        except (ArtifactsLost, ConnectionFailed) as error:
            lost = error.__cause__ if isinstance(error.__cause__, TPULost) else self._loss(record)
            raise lost or error from error

    def _collect(self, record: RunRecord, uri: str) -> Collected:
        with log_group(log, "Bring home what the run produced"):
            return self.run.clients.tpu.run(lambda client: collect(client, self.run, record, uri))

    def _loss(self, record: RunRecord) -> TPULost | None:
        """Whether the TPU went with the run; what the run says of itself does not decide that."""
        node = self.run.attempt_node(record)
        return self.run.clients.tpu.run(lambda client: lost_state(client, node))

    def _last_lines(self, uri: str) -> str:
        where = f"{uri}/{protocol.LOG_OBJECT}"
        found = self.run.clients.storage.read_end(where)
        if found is None:
            return f"(its log is missing: {where} does not exist, so it was not copied from the TPU)"
        end = LineAssembler()
        lines = end.feed(found) + end.close()
        return "\n".join(lines[-_SHOWN_LINES:]) or f"(its log {where} is empty: the script has printed nothing)"

    def _keep(self, record: RunRecord, uri: str) -> None:
        """Nothing that a failed run produced is lost: its log and files go to the bucket before the TPU goes."""
        try:
            pushed = self._collect(record, uri)
        except TPUError as error:
            log.warning("what the failed run produced could not be copied, the task delete tries again: %s", error)
            return
        pushed.tell(uri)
