"""Run the user's script on the TPU and survive what happens to the connection and to Airflow."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_tpu import protocol
from airflow_tpu.clients.log_groups import phase
from airflow_tpu.consequences import MAY_LIVE, stated
from airflow_tpu.core.run.interruption import Reached
from airflow_tpu.core.run.log_lines import LineAssembler
from airflow_tpu.core.run.plan import artifacts_uri
from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.core.run.trigger_context import raise_for
from airflow_tpu.core.tpu.commands import ssh_command, tensorboard_command
from airflow_tpu.core.tpu.outcome import final_error
from airflow_tpu.errors import ArtifactsLost, BudgetExhausted, ConnectionFailed, RunStalled, TPUError, TPULost
from airflow_tpu.links.artifacts import CloudTPUArtifactsLink
from airflow_tpu.links.tpu import CloudTPUNodeLink
from airflow_tpu.operators.provision import CloudTPUProvisionOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.lifecycle.run_context import Workbench
    from airflow_tpu.lifecycle.training.collect import Collected
    from airflow_tpu.lifecycle.training.follow import RunningJob

_SHOWN_LINES = 20
"""How much of the log an error repeats; all of it is in the task log and in the bucket."""

STALLS_PER_TPU = 2
"""Stalls on one TPU after which the TPU counts as what is wrong: a device that stays busy stalls every attempt."""

INTERRUPTION = "interruption"
"""XCom key under which a try that lost its run says what that cost."""


class CloudTPUTrainOperator(CloudTPUProvisionOperator):
    """Run a script on the run's TPU, detached from every SSH connection, with its log in the task log.

    Each try begins by ensuring the TPU: a cleared or retried task runs without *create*. A run that an earlier try
    left on the node is followed, never started twice. A script that fails is reported with its exit code and last
    lines after its log and whatever it produced are in the bucket. A try that loses its run ends with one line: why,
    how far it was, what is safe, how much is lost; the same is its XCom ``interruption``. Before the script's own lines
    the log has the commands for a login on the TPU and for TensorBoard.

    :return: attempt, exit code and seconds of training.
    """

    operator_extra_links = (CloudTPUNodeLink(), CloudTPUArtifactsLink())

    _reached = Reached()
    _ended_at: dt.datetime | None = None

    def on_ready(self, context: Context, bench: Workbench, record: RunRecord, node: ResourceName) -> Any:
        """Attach or start, follow for a while, then leave the rest to the triggerer."""
        CloudTPUNodeLink.persist_node(context, node)
        _ = bench.access  # connections are read before the event loop runs
        with self._losses_counted(context, bench, record, node.id):
            job, result = asyncio.run(self._run(bench, record, node))
            if result is not None:
                return self._finish(context, bench, record, result)
        # Now, for whoever looks while it trains; Airflow also logs an error where a link of a deferred task is missing.
        uri = artifacts_uri(bench.conf, record.key.name, job.ref.attempt)
        CloudTPUArtifactsLink.persist_uri(context, uri, bench.spec.project_id)
        self._defer_until_finished(record, job)

    @stated(MAY_LIVE)
    def execute_finished(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after the trigger has followed the run to its end (or lost its TPU)."""
        bench = self.bench(context)
        record = bench.runs.read(bench.key)
        self.arm(bench, record)
        self._reached = Reached.from_json((event or {}).get("reached"))
        with self._losses_counted(context, bench, record, record.attempt_node):
            result = RunResult.from_json(raise_for(event)["result"])
            return self._finish(context, bench, record, result)

    async def _run(
        self, bench: Workbench, record: RunRecord, node: ResourceName
    ) -> tuple[RunningJob, RunResult | None]:
        from airflow_tpu.lifecycle.training.follow import Follower
        from airflow_tpu.lifecycle.training.launch import attach, launch

        async with bench.tpu.client() as client:
            with phase(self.log, "Ship the script and start it"):
                job = await attach(client, bench, record, node) or await launch(client, bench, record, node)
            self._introduce(bench, job, record)
            follower = Follower(client, bench.access.login, job, self.log.info)
            pause = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.inline_seconds(record.lease.expires_at))
            try:
                return job, await follower.until_finished(record.lease.expires_at, pause if self.deferrable else None)
            finally:
                self._reached = follower.reached

    def _introduce(self, bench: Workbench, job: RunningJob, record: RunRecord) -> None:
        """What a person needs beside the log that follows."""
        uri = artifacts_uri(bench.conf, record.key.name, job.ref.attempt)
        self.log.info("log in to the TPU: %s", ssh_command(job.node))
        self.log.info("curves, once the run has ended: %s", tensorboard_command(uri))
        self.log.info(
            "the log of attempt %d follows; the run is stopped at %s", job.ref.attempt, record.lease.expires_at
        )

    @contextlib.contextmanager
    def _losses_counted(self, context: Context, bench: Workbench, record: RunRecord, node_id: str) -> Iterator[None]:
        """Every ending that is worth another attempt draws on the run's budget; once it is used up the run ends."""
        try:
            yield
        except TPUError as error:
            if isinstance(error, TPULost):
                self.close_lost(bench, record, node_id, error)
            elif isinstance(error, RunStalled):
                self._count_stall(bench, record, node_id)
            exhausted = self._spend(context, bench, record, error)
            if exhausted is not None:
                raise exhausted from error
            raise

    def _count_stall(self, bench: Workbench, record: RunRecord, node_id: str) -> None:
        """After a second stall on a TPU the next try begins with another one."""
        record = bench.runs.update(record, lambda now: now.with_life(node_id, stalls=now.life(node_id).stalls + 1))
        stalls = record.life(node_id).stalls
        if stalls >= STALLS_PER_TPU:
            self.log.warning("the run has stalled %d times on %s: it is deleted, and replaced", stalls, node_id)
            self._clean_up(bench, record)

    def _spend(self, context: Context, bench: Workbench, record: RunRecord, error: TPUError) -> BudgetExhausted | None:
        from airflow_tpu.lifecycle.training.losses import Ended, spend

        seen = error.at if isinstance(error, TPULost) else None
        ended = Ended(error, seen or self._ended_at or dt.datetime.now(dt.UTC), self._reached)
        spent = spend(bench, record, ended)
        if spent is None:
            return None
        interruption, exhausted = spent
        # The Task SDK of Airflow 3.3.2 lets no task write a note on itself; XCom is what the UI shows of a try.
        context["ti"].xcom_push(key=INTERRUPTION, value=interruption.to_json())
        self.log.warning("%s", interruption)
        return exhausted

    def _defer_until_finished(self, record: RunRecord, job: RunningJob) -> NoReturn:
        from airflow_tpu.triggers.run import CloudTPURunTrigger

        self.log.info("the log goes on in the triggerer; deadline %s", record.lease.expires_at)
        watch = self.watch(record, record.lease.expires_at)
        self.defer(trigger=CloudTPURunTrigger(watch=watch.to_json(), job=job.to_json()), method_name="execute_finished")

    def _finish(self, context: Context, bench: Workbench, record: RunRecord, result: RunResult) -> dict[str, Any]:
        from airflow_tpu.lifecycle.training.resumption import tell_resumption

        record = bench.runs.update(record, lambda now: now.with_life(now.attempt_node, training_seconds=result.seconds))
        result = result.judged_by(record.lease.expires_at)
        uri = artifacts_uri(bench.conf, record.key.name, record.attempt)
        CloudTPUArtifactsLink.persist_uri(context, uri, bench.spec.project_id)
        tell_resumption(bench, result, self.log.info)
        error = classify_exit(result)
        if error is not None:
            self._keep(bench, record, uri)
            self._ended_at = result.ended
            error = classify_exit(result, self._last_lines(bench, uri)) or error
            raise final_error(error, asyncio.run(self._loss(bench, record))) or error
        self._bring_home(bench, record, uri)
        self.log.info("attempt %d finished after %.1f s", record.attempt, result.seconds)
        return {"attempt": record.attempt, "exit_code": result.exit_code, "training_seconds": round(result.seconds, 1)}

    def _bring_home(self, bench: Workbench, record: RunRecord, uri: str) -> None:
        """What the run produced is in the bucket before this task ends: a TPU that goes then takes nothing along.

        Lost before that, the run is tried again like any other: it resumes from its last checkpoint and pushes anew.

        :raises TPULost: the TPU went first.
        """
        try:
            self._collect(bench, record, uri)
        except (ArtifactsLost, ConnectionFailed) as error:
            lost = error.__cause__ if isinstance(error.__cause__, TPULost) else asyncio.run(self._loss(bench, record))
            raise lost or error from error

    def _collect(self, bench: Workbench, record: RunRecord, uri: str) -> Collected:
        from airflow_tpu.lifecycle.training.collect import collect

        with phase(self.log, "Bring home what the run produced"):
            return asyncio.run(collect(bench, record, uri))

    async def _loss(self, bench: Workbench, record: RunRecord) -> TPULost | None:
        """Whether the TPU went with the run; what the run says of itself does not decide that."""
        from airflow_tpu.lifecycle.loss import lost_state

        async with bench.tpu.client() as client:
            return await lost_state(client, bench.attempt_node(record))

    def _last_lines(self, bench: Workbench, uri: str) -> str:
        end = LineAssembler()
        lines = end.feed(bench.storage.read_end(f"{uri}/{protocol.LOG_OBJECT}")) + end.close()
        return "\n".join(lines[-_SHOWN_LINES:])

    def _keep(self, bench: Workbench, record: RunRecord, uri: str) -> None:
        """Nothing that a failed run produced is lost: its log and files go to the bucket before the TPU goes."""
        try:
            pushed = self._collect(bench, record, uri)
        except TPUError as error:
            self.log.warning("what the failed run produced could not be kept: %s", error)
            return
        pushed.tell(uri)
