# SPDX-License-Identifier: Apache-2.0
"""Airflow's retry policy, built from the marks of the error tree."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryDecision, RetryRule

from airflow_tpu import errors, settings

if TYPE_CHECKING:
    from airflow.sdk import Context

_LATER = 20
"""How many times the usual delay a retry waits for capacity, quota and rate limits: five minutes."""

_AT_ONCE = 1.0
"""Seconds before a retry that no pause helps, at most: Airflow's scheduler looks about as often."""

_BUGS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, SyntaxError, TypeError)

_INTERRUPTED = "the wait was interrupted; the next try re-attaches"

OF_AIRFLOW = (
    ("airflow.sdk.exceptions.TaskDeferralTimeout", False, _INTERRUPTED),
    ("airflow.sdk.exceptions.TaskDeferralError", False, _INTERRUPTED),
    (
        "airflow.sdk.exceptions.AirflowTaskTimeout",
        True,
        "execution_timeout has passed and the TPU is deleted: raise it, or leave it out (deadline_hours ends a run in "
        "order), then clear the run",
    ),
    (
        "jinja2.exceptions.TemplateError",
        True,
        "a template of the task cannot be rendered: correct it in the form or in the DAG",
    ),
)
"""What Airflow raises before or around our code: path, whether it fails at once, and why."""

FOREIGN_LIMIT = 5
"""How often an error that has no rule is tried again."""

_FOREIGN_KEY = "foreign_failures"


def leaves(root: type[errors.TPUError] = errors.TPUError) -> Iterator[type[errors.TPUError]]:
    """Every class of the tree, children before their parents, so that the most exact rule is found first."""
    for child in root.__subclasses__():
        yield from leaves(child)
    yield root


def reason_of_airflow(error: BaseException) -> str:
    """What an error of :data:`OF_AIRFLOW` means, empty for any other."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return next((reason for path, _, reason in OF_AIRFLOW if path in names), "")


_SCRIPT_KEY = "script_failures"


class TPURetryPolicy(ExceptionRetryPolicy):
    """Rules for our errors, and a few tries for all others.

    ``retries`` has to be as large as the largest budget of preemptions, so it cannot bound what has no rule (Airflow's
    API is down, the worker's disk is full) nor a script that fails: these are counted apart, in the state that survives
    the tries.

    :param script_retries: how often a script that has failed is tried again.
    """

    def __init__(
        self, rules: list[RetryRule], default: RetryAction = RetryAction.DEFAULT, script_retries: int = 0
    ) -> None:
        super().__init__(rules, default)
        self.script_retries = script_retries

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide by rule; without one, by how often that has happened in this task."""
        if context is not None and self.script_retries and _may_end_otherwise(exception):
            count = _count(context, f"{_SCRIPT_KEY}_{max_tries}")  # another limit after each clear, which begins anew
            if count <= self.script_retries:
                reason = f"the script has failed: retry {count} of {self.script_retries}"
                return RetryDecision(RetryAction.DEFAULT, reason=reason)
        decision = super().evaluate(exception, try_number, max_tries, context)
        if decision.action is not RetryAction.DEFAULT or context is None:
            return decision
        count = _count(context, _FOREIGN_KEY)
        if count > FOREIGN_LIMIT:
            return RetryDecision.fail(f"{type(exception).__name__}: happened {count} times")
        return decision


def _may_end_otherwise(error: BaseException) -> bool:
    """Whether a script has failed without saying, by its exit code, that another try would end alike."""
    from airflow_tpu import protocol as codes  # here, since every DAG file loads this module and few tasks come here

    return isinstance(error, errors.RunFailed) and error.exit_code not in codes.FINAL_EXITS


def _count(context: Context, key: str) -> int:
    """Count one more of these failures of the task."""
    store = context["task_state_store"]
    count = int(str(store.get(key, 0))) + 1
    store.set(key, count)
    return count


def retry_policy(script_retries: int = 0) -> ExceptionRetryPolicy:
    """Return the rules for every error of the tree.

    A bug (ours, or of the installation) is not cured by trying: it fails at once and does not hold the TPU.
    A deferral that times out or whose trigger cannot be loaded says nothing about the run on the TPU: the next try
    re-attaches to it. ``execution_timeout`` bounds the task, not each of its tries.

    :param script_retries: how often a script that has failed is tried again.
    """
    return _policy(settings.retry_seconds(), script_retries)


@functools.lru_cache(maxsize=16)
def _policy(usual: float, script_retries: int) -> ExceptionRetryPolicy:
    """One for all tasks of a DAG: a DAG file is parsed every few seconds."""
    rules = [_rule(kind, usual) for kind in leaves()]
    rules.append(RetryRule(exception=[*_BUGS], action=RetryAction.FAIL, reason="a bug: trying again cannot help"))
    rules += [
        RetryRule(
            exception=path,
            action=RetryAction.FAIL if final else RetryAction.RETRY,
            retry_delay=None if final else _delay(errors.Retry.SOON, usual),
            reason=reason,
        )
        for path, final, reason in OF_AIRFLOW
    ]
    return TPURetryPolicy(rules, script_retries=script_retries)


def _rule(kind: type[errors.TPUError], usual: float) -> RetryRule:
    path = f"{kind.__module__}.{kind.__qualname__}"
    if kind.retry is errors.Retry.NEVER:
        return RetryRule(exception=path, action=RetryAction.FAIL, reason=f"{kind.__name__}: trying again cannot help")
    return RetryRule(
        exception=path,
        action=RetryAction.RETRY,
        retry_delay=_delay(kind.retry, usual),
        reason=f"{kind.__name__}: {kind.budget.value} budget",
    )


def _delay(retry: errors.Retry, usual: float) -> timedelta:
    seconds = {errors.Retry.AT_ONCE: min(_AT_ONCE, usual), errors.Retry.LATER: usual * _LATER}
    return timedelta(seconds=seconds.get(retry, usual))
