# SPDX-License-Identifier: Apache-2.0
"""Run the user's script on the TPU and survive what happens to the connection and to Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_tpu.core import json_form
from airflow_tpu.core.run.interruption import Interruption, Reached
from airflow_tpu.core.run.job import ASKED, training_of
from airflow_tpu.core.run.result import RunResult
from airflow_tpu.core.run.trigger_context import BEHIND, raise_for
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.links.artifacts import CloudTPUArtifactsLink
from airflow_tpu.links.tpu import CloudTPUNodeLink
from airflow_tpu.operators.lease import check_session_is_open
from airflow_tpu.operators.provision import INFRASTRUCTURE_RETRIES, CloudTPUProvisionOperator
from airflow_tpu.operators.reporting import reported
from airflow_tpu.retry import retry_policy

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context, XComArg

    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.ensure_tpu import Ready
    from airflow_tpu.lifecycle.run_context import RunContext
    from airflow_tpu.lifecycle.train import Trained, Training
    from airflow_tpu.lifecycle.training.follow import RunningJob

INTERRUPTION = "interruption"
"""XCom key under which a try that lost its run says what that cost."""


class CloudTPUTrainOperator(CloudTPUProvisionOperator):
    """Run a script on the run's TPU, detached from every SSH connection, with its log in the task log.

    Each try begins by ensuring the TPU: a cleared or retried task runs without *create*. A run that an earlier try
    left on the node is followed, never started twice. A script that fails is reported with its exit code and last
    lines after its log and whatever it produced are in the bucket. A try that loses its run ends with one line: why,
    how far it was, what is safe, how much is lost; the same is its XCom ``interruption``. Before the script's own lines
    the log has the commands for a login on the TPU and for TensorBoard.

    A session may have several trainings, one after the other or on branches of which one is taken. Each has its own
    attempts, checkpoints, artifacts and log file, below the id of its task; budget, deadline and TPU are the session's.

    :param changes: fields of the form that are different for this training, such as ``script`` or ``arguments``; which
        TPU it is, and until when, the session says (templated; the output of another task may stand for them).
    :param retries: how often a script that has failed is tried again, on the same TPU, where it resumes from its newest
        checkpoint. A final exit code (docs/script-contract.md) ends it at once. Losses of the TPU count apart:
        ``max_preemptions``.
    :return: attempt, exit code and seconds of training.
    """

    template_fields = (*CloudTPUProvisionOperator.template_fields, "changes")
    operator_extra_links = (CloudTPUNodeLink(), CloudTPUArtifactsLink())

    def __init__(self, *, changes: Mapping[str, Any] | XComArg | None = None, retries: int = 0, **kwargs: Any) -> None:
        if changes is None or isinstance(changes, Mapping):
            check_changes(changes or {}, kwargs.get("task_id"))
        limits = {"retries": INFRASTRUCTURE_RETRIES + retries, "retry_policy": retry_policy(retries)}
        super().__init__(**{**limits, **kwargs})
        check_session_is_open(self)
        self.changes: Any = {} if changes is None else changes  # as rendered when the task runs, like conf

    @property
    def training(self) -> str:
        """Name of the training: the id of its task in the session."""
        return training_of(self.task_id, self.session)

    def asked(self) -> str | Mapping[str, Any]:
        """The session's form with the fields that differ."""
        from airflow_tpu.lifecycle.run_context import conf_mapping

        check_changes(self.changes, self.task_id)
        return {**conf_mapping(self.conf), **self.changes} if self.changes else self.conf

    def on_ready(self, context: Context, run: RunContext, found: Ready) -> Any:
        """Attach or start, follow for a while, then leave the rest to the triggerer."""
        from airflow_tpu.lifecycle.train import Trained

        record = found.record
        CloudTPUNodeLink.persist_node(context, found.node)
        done = self._training(context, run, record).train(found.node, self.waiting())
        return self._described(done) if isinstance(done, Trained) else self._hand_over(record, done)

    def _hand_over(self, record: RunRecord, done: RunningJob) -> NoReturn:
        from airflow_tpu.triggers.run import CloudTPURunTrigger

        self.log.info("the log continues in the triggerer; deadline %s", record.lease.expires_at)
        watch = self.trigger_context(record.key, record.lease.token, record.lease.expires_at)
        self.defer(trigger=CloudTPURunTrigger(watch, json_form.to_json(done)), method_name="execute_finished")

    @reported
    def execute_finished(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Continue after the trigger has followed the run to its end (or lost its TPU)."""
        run, record = self.armed(context)
        training = self._training(context, run, record)
        CloudTPUArtifactsLink.persist_uri(context, run.attempt(record).uri, run.request.spec.project_id)
        reached = json_form.from_json(Reached, (event or {}).get("reached") or {})
        if event is not None and event.get("status") == BEHIND:
            from airflow_tpu.lifecycle.train import Trained
            from airflow_tpu.lifecycle.training.follow import RunningJob

            done = training.follow_on(json_form.from_json(RunningJob, event["job"]), reached)
            return self._described(done) if isinstance(done, Trained) else self._hand_over(record, done)
        return self._described(training.finish(lambda: RunResult.from_json(raise_for(event)["result"]), reached))

    def _training(self, context: Context, run: RunContext, record: RunRecord) -> Training:
        from airflow_tpu.lifecycle.train import Listener, Training

        def artifacts(uri: str) -> None:
            CloudTPUArtifactsLink.persist_uri(context, uri, run.request.spec.project_id)

        def interruption(cost: Interruption) -> None:
            # The Task SDK of Airflow 3.3.2 lets no task write a note on itself; XCom is what the UI shows of a try.
            context["ti"].xcom_push(key=INTERRUPTION, value=json_form.to_json(cost))
            self.log.warning("%s", cost)

        return Training(run, record, Listener(self.log.info, artifacts, interruption))

    def _described(self, done: Trained) -> dict[str, Any]:
        result = done.result
        return {
            "attempt": done.attempt,
            "exit_code": result.exit_code,
            "training_seconds": round(result.seconds, 1),
        }


def check_changes(changes: object, task_id: object) -> None:
    """Refuse what a training may not change: when the DAG is parsed, or when another task has said what to change.

    :raises ConfigError: with every such name.
    """
    if not isinstance(changes, Mapping):
        raise ConfigError([Fault("changes", changes, "is not a mapping of fields of the form")], f"task {task_id}")
    if wrong := [_no_change(name, changes) for name in changes if name not in ASKED]:
        raise ConfigError(wrong, f"changes of {task_id}")


def _no_change(name: str, changes: Mapping[str, Any]) -> Fault:
    """What is wrong with a name among the changes: a field of the whole session, or no field at all."""
    from airflow_tpu.core.request.form_fields import FORM
    from airflow_tpu.core.request.unknown_fields import unknown_field

    if name in FORM:
        return Fault(name, changes[name], "is not what a training may change", ASKED)
    return unknown_field(name, ASKED)


def nearest_trainings(task: BaseOperator) -> list[CloudTPUTrainOperator]:
    """The trainings above a task that no other one above it comes after; several only if they are on branches.

    :param task: of the DAG, which knows the tasks above.
    """
    above = [one for one in task.get_flat_relatives(upstream=True) if isinstance(one, CloudTPUTrainOperator)]
    earlier = {name for one in above for name in one.get_flat_relative_ids(upstream=True)}
    return [one for one in above if one.task_id not in earlier]
