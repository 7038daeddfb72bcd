# SPDX-License-Identifier: Apache-2.0
"""The retry policy is the error tree."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import ExceptionRetryPolicy, RetryAction
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferralError, TaskDeferralTimeout

from airflow_tpu import errors
from airflow_tpu.core.run.trigger_context import error_event, raise_for
from airflow_tpu.retry import FOREIGN_LIMIT, leaves, retry_policy


def make(kind: type[errors.TPUError]) -> errors.TPUError:
    """An instance of any class of the tree."""
    return kind([errors.Fault("zone", "x", "is wrong")]) if issubclass(kind, errors.ConfigError) else kind("text")


@pytest.mark.parametrize("kind", list(leaves()), ids=lambda kind: kind.__name__)
def test_every_class_is_decided_by_its_own_mark(kind: type[errors.TPUError]) -> None:
    """A class marked never fails at once, any other is tried again; no class falls through to a parent's rule."""
    decision = retry_policy().evaluate(make(kind), try_number=1, max_tries=5)
    expected = RetryAction.FAIL if kind.retry is errors.Retry.NEVER else RetryAction.RETRY
    assert decision.action is expected
    assert kind.__name__ in str(decision.reason)


@pytest.mark.parametrize("retry", [mark for mark in errors.Retry if mark is not errors.Retry.NEVER])
def test_mark_decides_how_long_a_retry_waits(retry: errors.Retry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss is replaced after a second, what passes is tried again after the usual delay, capacity after minutes."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__RETRY_SECONDS", "15")
    kinds = [kind for kind in leaves() if kind.retry is retry]
    found = {retry_policy().evaluate(make(kind), try_number=1, max_tries=5).retry_delay for kind in kinds}
    waits = {errors.Retry.AT_ONCE: 1, errors.Retry.SOON: 15, errors.Retry.LATER: 300}
    assert found == {timedelta(seconds=waits[retry])}


@pytest.mark.parametrize("kind", [errors.TPUPreempted, errors.HostLost, errors.RunStalled, errors.AcceleratorMissing])
def test_loss_is_not_waited_for(kind: type[errors.TPUError]) -> None:
    """What has to be replaced comes back by no waiting; a stopped TPU only by a person."""
    assert kind.retry is errors.Retry.AT_ONCE
    assert errors.TPUStopped.retry is errors.Retry.NEVER


class Store(dict[str, object]):
    """The state of a task, as far as the policy uses it."""

    def set(self, key: str, value: object) -> None:
        """Keep a value."""
        self[key] = value


def test_foreign_errors_are_tried_a_few_times_only() -> None:
    """A thousand tries are for preemptions; an error without a rule fails after a handful, counted over all tries."""
    context = {"task_state_store": Store()}
    found = [
        retry_policy().evaluate(OSError("disk"), try_number=number, max_tries=1000, context=context).action  # type: ignore[arg-type]
        for number in range(1, FOREIGN_LIMIT + 2)
    ]
    assert found == [RetryAction.DEFAULT] * FOREIGN_LIMIT + [RetryAction.FAIL]


def test_foreign_errors_keep_plain_retries() -> None:
    """What is not ours is left to Airflow's own counting."""
    assert retry_policy().evaluate(OSError("disk"), try_number=1, max_tries=5).action is RetryAction.DEFAULT


@pytest.mark.parametrize(
    ("error", "actions"),
    [
        (errors.RunFailed("exit 3", 3), [RetryAction.DEFAULT, RetryAction.DEFAULT, RetryAction.FAIL]),
        (errors.RunFailed("bad data", 65), [RetryAction.FAIL]),
        (errors.DeadlineExceeded("late"), [RetryAction.FAIL]),
    ],
)
def test_script_that_fails_is_tried_again_as_often_as_its_task_says(
    error: errors.TPUError, actions: list[RetryAction]
) -> None:
    """Unless its exit code says that another try ends alike; after a clear, which raises the limit, it counts anew."""
    policy, context = retry_policy(script_retries=2), {"task_state_store": Store()}
    for limit in (1052, 1055):
        found = [policy.evaluate(error, 1, limit, context).action for _ in actions]  # type: ignore[arg-type]
        assert found == actions


@pytest.mark.parametrize("interruption", [TaskDeferralTimeout("late"), TaskDeferralError("no such trigger")])
def test_interrupted_wait_is_tried_again_soon(interruption: Exception) -> None:
    """A deferral that timed out, or whose trigger failed, says nothing of the run: the next try re-attaches to it."""
    context = {"task_state_store": Store()}
    decision = retry_policy().evaluate(interruption, try_number=1, max_tries=1000, context=context)  # type: ignore[arg-type]
    assert decision.action is RetryAction.RETRY
    assert decision.retry_delay is not None
    assert "re-attaches" in str(decision.reason)


def test_execution_timeout_fails_at_once() -> None:
    """A task that took longer than its own limit is not tried again, and its reason names the limit to raise."""
    context = {"task_state_store": Store()}
    decision = retry_policy().evaluate(AirflowTaskTimeout("slow"), try_number=1, max_tries=1000, context=context)  # type: ignore[arg-type]
    assert decision.action is RetryAction.FAIL
    assert "execution_timeout" in str(decision.reason)
    assert "deadline_hours" in str(decision.reason)


@pytest.mark.parametrize("bug", [AttributeError("x"), KeyError("x"), ImportError("x"), ZeroDivisionError()])
def test_bug_fails_at_once(bug: Exception) -> None:
    """A bug does not burn 25 tries while a TPU waits for it."""
    assert retry_policy().evaluate(bug, try_number=1, max_tries=25).action is RetryAction.FAIL


def test_policy_survives_dag_serialization() -> None:
    """The scheduler sees the same rules that the worker evaluates."""
    policy = retry_policy()
    assert ExceptionRetryPolicy.deserialize(policy.serialize()).serialize() == policy.serialize()


@pytest.mark.parametrize("kind", [errors.StockOut, errors.TPUPreempted, errors.RunInterrupted, errors.DeadlineExceeded])
def test_error_crosses_the_trigger_as_itself(kind: type[errors.TPUError]) -> None:
    """An error that a trigger meets is raised in the task as the same class with the same text."""
    with pytest.raises(kind, match="the text"):
        raise_for(error_event(kind("the text")))


def test_missing_event_is_an_error() -> None:
    """A trigger that ends without an event is not a success."""
    with pytest.raises(errors.TransientError):
        raise_for(None)
