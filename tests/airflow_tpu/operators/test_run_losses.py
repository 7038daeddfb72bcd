# SPDX-License-Identifier: Apache-2.0
"""A training that loses its TPU: what is in the ledger, in the budget and in the UI after the try, and no later."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.consequences import LOST, MAY_LIVE
from airflow_tpu.core import json_form
from airflow_tpu.core.ledger.events import Closed, EndReason, TimeSource
from airflow_tpu.core.run.interruption import Interruption, Reached
from airflow_tpu.core.run.job import LastAttempt
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.run.trigger_context import error_event
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.errors import (
    AcceleratorMissing,
    BudgetExhausted,
    DeadlineExceeded,
    HostLost,
    LoginRefused,
    RunFailed,
    RunInterrupted,
    RunStalled,
    TPUError,
    TPULost,
    TPUMaintenance,
    TPUPreempted,
    TPUVanished,
)
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd, closing, noted_ends
from airflow_tpu.lifecycle.ends.records import close_incarnations
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.stores.grants import store_root
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.runs import RunStore
from tests.airflow_tpu.cloud_env import BUCKET, KEY, ZONE, CloudEnv, context, now, poll_policy

NODE_ID = KEY.node_id(1)
NODE = node_name("local-project", ZONE, NODE_ID)
SECOND = dt.timedelta(seconds=1)
AT_LAST = IncarnationEnd(NODE_ID, now(), EndReason.FINISHED, TimeSource.OBSERVED)
"""What the delete of a READY node shows."""


@dataclass
class Training:
    """A train task that a trigger wakes.

    :param record: as the create task has left it.
    :param xcom: what the task has told the UI.
    """

    env: CloudEnv
    record: RunRecord
    ledger: LedgerStore
    runs: RunStore
    xcom: dict[str, Any] = field(default_factory=dict)

    def wake(self, event: dict[str, Any], **conf: Any) -> None:
        """Execute the task as after its deferral."""
        asked = {
            "script": "hello.py",
            "accelerator_type": "v2-8",
            "zone": ZONE,
            "tier": "spot",
            "artifacts_uri": f"gs://{BUCKET}/runs",
        }
        task = CloudTPUTrainOperator(task_id="train", conf={**asked, **conf})
        instance = SimpleNamespace(dag_id=KEY.dag_id, run_id=KEY.run_id, map_index=-1, xcom_push=self._push)
        task.execute_finished(context(ti=instance), event)

    def hear_of_wait(self, event: dict[str, Any], **conf: Any) -> None:
        """Execute the task as after the wait for its TPU."""
        asked = {
            "script": "hello.py",
            "accelerator_type": "v2-8",
            "zone": ZONE,
            "tier": "spot",
            "artifacts_uri": f"gs://{BUCKET}/runs",
        }
        task = CloudTPUTrainOperator(task_id="train", conf={**asked, **conf})
        instance = SimpleNamespace(dag_id=KEY.dag_id, run_id=KEY.run_id, map_index=-1, xcom_push=self._push)
        task.execute_ready(context(ti=instance), event)

    @property
    def started_at(self) -> dt.datetime:
        """When its attempt was started."""
        at = self.record.last_attempt("train").at
        assert at is not None
        return at

    def _push(self, key: str, value: object) -> None:
        self.xcom[key] = value

    @property
    def closed(self) -> list[Closed]:
        """The ends that the ledger has."""
        return [event for event in self.ledger.events(KEY) if isinstance(event, Closed)]


def begun(at: dt.datetime) -> LastAttempt:
    """An attempt that was started on the node then."""
    return LastAttempt(node_id=NODE_ID, at=at, uri=f"gs://{BUCKET}/runs/{KEY.name}/train/attempt-1")


@pytest.fixture
async def training(env: CloudEnv, client: TPUClient) -> Training:
    """A TPU that has been READY for a while, on which an attempt was started half a minute ago."""
    root = store_root(env.grant)
    runs, ledger = RunStore(env.storage, root), LedgerStore(env.storage, root)
    record = runs.acquire(KEY, ZONE, now() + dt.timedelta(hours=1))
    target = await Provisioner(client, replace(env.stores, runs=runs, ledger=ledger), env.order(), record).ensure()
    await until_ready(client, target, poll_policy())
    since = now() - dt.timedelta(minutes=10)
    record = runs.update(record, lambda found: found.with_life(NODE_ID, ready_at=since))
    record = runs.update(record, lambda found: found.next_attempt(begun(now() - 30 * SECOND), "train"))
    return Training(env, record, ledger, runs)


LOSSES: list[tuple[Callable[..., TPULost], EndReason]] = [
    (TPUPreempted, EndReason.PREEMPTED),
    (TPUMaintenance, EndReason.FAILED),
]


@pytest.mark.parametrize(("kind", "reason"), LOSSES)
def test_ledger_ends_when_the_loss_was_seen(
    training: Training, kind: Callable[..., TPULost], reason: EndReason
) -> None:
    """The end in the ledger is the trigger's, not that of the task that resumes later, and needs no next try."""
    seen = now() - dt.timedelta(minutes=2)
    with pytest.raises(TPULost, match=f"gone; {LOST}"):
        training.wake(error_event(kind("gone", seen)))
    (closed,) = training.closed
    assert (closed.node_id, closed.ended_at, closed.end_reason) == (NODE_ID, seen, reason)


async def test_delete_by_somebody_else_that_fails(training: Training, client: TPUClient) -> None:
    """Seen going, its end is noted and not yet in the ledger: found alive by the next try the TPU is used again."""
    seen = now() - SECOND
    with pytest.raises(TPUVanished, match=f"a person or another program is deleting it; {MAY_LIVE}"):
        training.wake(error_event(TPUVanished("a person or another program is deleting it", seen)))
    assert (training.closed, [end.at for end in noted_ends(training.runs.read(KEY))]) == ([], [seen])
    target = await training.env.ensure(client)
    assert (target.node_id, training.closed, noted_ends(training.runs.read(KEY))) == (NODE_ID, [], [])


async def test_delete_by_somebody_else_that_takes_effect(training: Training, client: TPUClient) -> None:
    """The next try finds it gone: the ledger has the end as it was seen, with what was lost."""
    seen = now() - SECOND
    with pytest.raises(TPUVanished):
        training.wake(error_event(TPUVanished("a person or another program is deleting it", seen)))
    await client.delete_node(NODE)
    await until_gone(client, KEY, poll_policy())
    await training.env.ensure(client)
    (closed,) = training.closed
    assert (closed.ended_at, closed.end_reason) == (seen, EndReason.VANISHED)
    assert closed.lost_seconds == pytest.approx((seen - training.started_at).total_seconds())


def test_last_loss_ends_the_ledger_too(training: Training) -> None:
    """A run whose budget is used up has the end of its TPU in the ledger before any teardown."""
    seen = now() - SECOND
    with pytest.raises(BudgetExhausted, match="max_preemptions is 0"):
        training.wake(error_event(TPUPreempted("gone", seen)), max_preemptions=0)
    assert [event.ended_at for event in training.closed] == [seen]


def test_silent_host_is_deleted_at_once(training: Training) -> None:
    """A host that was given up while it is READY is asked to go with the try that gave it up: it costs till then."""
    before = now()
    with pytest.raises(HostLost):
        training.wake(error_event(HostLost("silent")))
    (end,) = noted_ends(training.runs.read(KEY))
    assert [call["method"] for call in training.env.calls("DeleteNode")] == ["Tpu/DeleteNode"]
    assert before - SECOND <= end.at <= now() + SECOND


def save_checkpoint(training: Training, at: dt.datetime, **manifest: Any) -> None:
    """Put a complete checkpoint of step 10 into the bucket."""
    name = f"{training.record.key.name}/train/checkpoints/attempt-1/000000000010.step/MANIFEST.json"
    document = {"step": 10, "files": [], "created": at.timestamp(), **manifest}
    training.env.storage.write_json(f"gs://{BUCKET}/runs/{name}", document)


@pytest.mark.parametrize("error", [HostLost("silent"), RunInterrupted("no result"), AcceleratorMissing("no TPU")])
def test_error_that_led_to_the_delete_is_the_reason_in_the_ledger(training: Training, error: TPUError) -> None:
    """The node is READY when it is deleted; the ledger says that it failed, with the seconds that the log has."""
    save_checkpoint(training, now() - 10 * SECOND)
    with pytest.raises(BudgetExhausted):
        training.wake(error_event(error), max_preemptions=0)
    close_incarnations(training.ledger, training.runs.read(KEY), KEY, [replace(AT_LAST, at=now())])
    (closed,) = training.closed
    assert (closed.end_reason, closed.lost_seconds) == (EndReason.FAILED, training.xcom["interruption"]["lost_seconds"])
    assert closed.lost_seconds == pytest.approx(10.0, abs=5.0)


def test_next_attempt_forgets_why_the_last_one_ended(training: Training) -> None:
    """A TPU on which the run goes on is not judged by the attempt before."""
    with pytest.raises(RunInterrupted):
        training.wake(error_event(RunInterrupted("no result")))
    record = training.runs.read(KEY)
    assert record.life(NODE_ID).cause is EndReason.FAILED
    life = record.next_attempt(begun(now()), "train").life(NODE_ID)
    assert (life.cause, life.lost_seconds) == (None, None)


def test_run_that_ends_by_itself_is_finished_for_its_tpu(training: Training) -> None:
    """Under maintenance when it is deleted, the TPU has done its work; gone before that, it vanished."""
    result = {"exit_code": 1, "started_at": now().timestamp() - 30, "ended_at": now().timestamp()}
    with pytest.raises(RunFailed):
        training.wake({"status": "finished", "result": result})
    (opened,) = training.ledger.open_records(KEY)
    record = training.runs.read(KEY)
    event = closing(opened, record, replace(AT_LAST, reason=EndReason.FAILED), now())
    assert (event.end_reason, event.lost_seconds) == (EndReason.FINISHED, 0.0)
    for seen, reason in ((replace(AT_LAST, reason=EndReason.DELETED), EndReason.DELETED), (None, EndReason.VANISHED)):
        assert closing(opened, record, seen, now()).end_reason is reason
        assert closing(opened, record, seen, now()).lost_seconds == 0.0
        ours = closing(opened, record.with_life(NODE_ID, deleting=True), seen, now())
        assert ours.end_reason is EndReason.FINISHED


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (None, r"its log is missing: gs://.*/attempt-1/log.txt does not exist"),
        (b"", r"its log gs://.*/attempt-1/log.txt is empty: the script has printed nothing"),
        (b"Traceback\nValueError: no such column\n", "\nTraceback\nValueError: no such column$"),
    ],
)
def test_missing_log_is_no_empty_one(training: Training, log: bytes | None, words: str) -> None:
    """The error of a failed script tells a log that was not copied from one without a line."""
    if log is not None:
        name = f"runs/{training.record.key.name}/train/attempt-1/log.txt"
        training.env.storage.get_conn().bucket(BUCKET).blob(name).upload_from_string(log)
    result = {"exit_code": 1, "started_at": now().timestamp() - 30, "ended_at": now().timestamp()}
    with pytest.raises(RunFailed, match=words):
        training.wake({"status": "finished", "result": result})


def test_tpu_that_goes_after_the_deadline_was_deleted_by_us(training: Training) -> None:
    """Reaper, deadline alert and guard delete what is overdue: the try names the deadline, and counts no loss."""
    training.runs.update(training.record, lambda found: replace(found, lease=replace(found.lease, expires_at=now())))
    with pytest.raises(DeadlineExceeded, match=r"deadline .* has passed.*somebody deletes it"):
        training.wake(error_event(TPUVanished("somebody deletes it", now())))
    assert training.runs.read(KEY).spent.losses == 0
    (opened,) = training.ledger.open_records(KEY)
    assert closing(opened, training.runs.read(KEY), None, now()).end_reason is EndReason.DELETED


def test_checkpoint_without_a_step_is_safe_all_the_same(training: Training, capfd: pytest.CaptureFixture[str]) -> None:
    """Files that the mirror has saved as a set have no step: what is safe and what is lost are of that very set."""
    seen = now()
    save_checkpoint(training, seen - 10 * SECOND, layout="files", step=None)
    with pytest.raises(TPUPreempted):
        training.wake(error_event(TPUPreempted("gone", seen)))
    line = capfd.readouterr().out.splitlines()[-1]
    assert "a checkpoint without a step is safe, 10 s of work lost" in line
    with pytest.raises(BudgetExhausted, match=r"newest checkpoint \(a checkpoint without a step\) is kept"):
        training.wake(error_event(RunInterrupted("no result")), max_preemptions=1)


def test_checkpoint_that_does_not_tell_when_makes_no_figure(training: Training) -> None:
    """Without the time of the checkpoint that is safe nobody knows what is lost since."""
    save_checkpoint(training, now(), created=None)
    reached = {"reached": json_form.to_json(Reached(step=14, safe_step=5, safe_at=now().timestamp()))}
    with pytest.raises(TPUPreempted):
        training.wake({**error_event(TPUPreempted("gone", now())), **reached})
    told = Interruption(**training.xcom["interruption"])
    assert (told.safe_step, told.lost_seconds) == (10, None)
    assert [event.lost_seconds for event in training.closed] == [None]


def test_node_under_maintenance_keeps_its_place(training: Training) -> None:
    """A node that comes back after maintenance is neither deleted nor at its end."""
    with pytest.raises(TPUMaintenance):
        training.wake(error_event(TPUMaintenance("down")))
    assert training.closed == []
    assert training.env.calls("DeleteNode") == []


def test_try_says_what_it_has_lost(training: Training, capfd: pytest.CaptureFixture[str]) -> None:
    """The last line of the try and its XCom have reason, step, safe step, lost seconds and the count."""
    manifest = f"{training.record.key.name}/train/checkpoints/attempt-1/000000000010.step/MANIFEST.json"
    seen = now() - 2 * SECOND
    saved = {"step": 10, "files": [], "created": (seen - 10 * SECOND).timestamp()}
    training.env.storage.write_json(f"gs://{BUCKET}/runs/{manifest}", saved)
    reached = {"reached": json_form.to_json(Reached(step=14))}
    with pytest.raises(TPUPreempted):
        training.wake({**error_event(TPUPreempted("gone", seen)), **reached}, max_preemptions=4)
    told = Interruption(**training.xcom["interruption"])
    assert told.lost_seconds == pytest.approx(10.0)
    assert replace(told, lost_seconds=None) == Interruption("TPUPreempted", 1, 4, 14, 10)
    assert f"{told}" in capfd.readouterr().out.splitlines()[-1]


def test_ledger_has_what_was_trained_and_what_of_it_is_lost(training: Training) -> None:
    """Thirty seconds of training count as such, and the ten after the newest safe checkpoint as lost."""
    manifest = f"{training.record.key.name}/train/checkpoints/attempt-1/000000000010.step/MANIFEST.json"
    seen = now()
    saved = {"step": 10, "files": [], "created": (seen - 10 * SECOND).timestamp()}
    training.env.storage.write_json(f"gs://{BUCKET}/runs/{manifest}", saved)
    with pytest.raises(TPUPreempted):
        training.wake(error_event(TPUPreempted("gone", seen)))
    (closed,) = training.closed
    assert closed.lost_seconds == pytest.approx(10.0)
    assert closed.training_seconds == pytest.approx((seen - training.started_at).total_seconds())


def test_without_a_checkpoint_everything_is_lost(training: Training) -> None:
    """A run that never saved has lost all of its training, and the ledger says so."""
    with pytest.raises(TPUPreempted):
        training.wake(error_event(TPUPreempted("gone", now())))
    (closed,) = training.closed
    assert closed.lost_seconds == pytest.approx(closed.training_seconds)
    assert closed.training_seconds > 0


def test_run_that_ends_on_a_lost_tpu_is_the_tpu_s_loss(training: Training) -> None:
    """A script that was stopped by the preemption says so too late to be believed: the node's state decides."""
    training.env.cloud.preempt(NODE_ID)
    result = {"exit_code": 143, "started_at": now().timestamp() - 30, "ended_at": now().timestamp()}
    with pytest.raises(TPUPreempted, match="exit code 143"):
        training.wake({"status": "finished", "result": result})
    assert [event.end_reason for event in training.closed] == [EndReason.PREEMPTED]


def test_run_that_is_interrupted_on_a_living_tpu_goes_on_there(training: Training) -> None:
    """The same exit code on a node that lives is an interruption of the run only; the TPU stays."""
    result = {"exit_code": 143, "started_at": now().timestamp() - 30, "ended_at": now().timestamp()}
    with pytest.raises(RunInterrupted):
        training.wake({"status": "finished", "result": result})
    assert training.closed == []
    assert 30 <= training.xcom["interruption"]["lost_seconds"] <= (now() - training.started_at).total_seconds()


def test_second_stall_on_a_tpu_ends_the_tpu(training: Training) -> None:
    """A run that stalls continues on its TPU; one that stalls there again gets another TPU, and this one is deleted."""
    with pytest.raises(RunStalled):
        training.wake(error_event(RunStalled("nothing changed")))
    assert training.closed == []
    assert training.env.calls("DeleteNode") == []
    with pytest.raises(RunStalled):
        training.wake(error_event(RunStalled("nothing changed")))
    assert training.closed == []  # it ends when it is gone; until then the lease has the note
    assert [end.node_id for end in noted_ends(training.runs.read(KEY))] == [NODE_ID]
    assert [call["method"] for call in training.env.calls("DeleteNode")] == ["Tpu/DeleteNode"]


def test_tpu_that_did_not_initialise_is_replaced(training: Training) -> None:
    """Exit 69 on a TPU that lives: this one is deleted with the try, so that the next try begins with another."""
    result = {"exit_code": 69, "started_at": now().timestamp() - 30, "ended_at": now().timestamp()}
    with pytest.raises(AcceleratorMissing):
        training.wake({"status": "finished", "result": result})
    assert [end.node_id for end in noted_ends(training.runs.read(KEY))] == [NODE_ID]
    assert [call["method"] for call in training.env.calls("DeleteNode")] == ["Tpu/DeleteNode"]


@pytest.mark.parametrize("code", [124, 137, 255])
def test_exit_code_of_the_script_s_own_is_its_failure(training: Training, code: int) -> None:
    """On a TPU that lives no code of the script's own means that a connection or the machine has ended it."""
    result = {"exit_code": code, "started_at": now().timestamp() - 30, "ended_at": now().timestamp()}
    with pytest.raises(RunFailed, match=f"exit code {code}"):
        training.wake({"status": "finished", "result": result})
    assert "interruption" not in training.xcom
    assert training.env.calls("DeleteNode") == []


def test_killed_by_a_preemption_is_the_tpu_s_loss(training: Training) -> None:
    """The same code on a TPU that was taken away costs an attempt and is no failure of the script."""
    training.env.cloud.preempt(NODE_ID)
    result = {"exit_code": 137, "started_at": now().timestamp() - 30, "ended_at": now().timestamp()}
    with pytest.raises(TPUPreempted, match="exit code 137"):
        training.wake({"status": "finished", "result": result})


@pytest.mark.parametrize("error", [HostLost("sick"), LoginRefused("no such key")], ids=["sick", "refused"])
def test_tpu_that_does_not_get_well_is_deleted_and_counted(training: Training, error: TPUError) -> None:
    """A TPU that was given up before it was well, or let us in, goes, and is one of the losses that the form allows."""
    with pytest.raises(type(error)):
        training.hear_of_wait(error_event(error), max_preemptions=1)
    assert [call["method"] for call in training.env.calls("DeleteNode")] == ["Tpu/DeleteNode"]
    with pytest.raises(BudgetExhausted, match="max_preemptions is 1"):
        training.hear_of_wait(error_event(error), max_preemptions=1)
