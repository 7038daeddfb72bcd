"""Airflow's retry policy, built from the marks of the error tree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from airflow_tpu import errors

DELAYS = {errors.Retry.SOON: timedelta(seconds=15), errors.Retry.LATER: timedelta(minutes=5)}

_BUGS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, SyntaxError, TypeError)


def leaves(root: type[errors.TPUError] = errors.TPUError) -> Iterator[type[errors.TPUError]]:
    """Every class of the tree, children before their parents, so that the most exact rule is found first."""
    for child in root.__subclasses__():
        yield from leaves(child)
    yield root


def retry_policy() -> ExceptionRetryPolicy:
    """Rules for every error of the tree.

    A bug (ours, or of the installation) is not cured by trying: it fails at once and does not hold the TPU.
    A deferral that times out or whose trigger cannot be loaded says nothing about the run on the TPU: the next try
    re-attaches to it. Anything else that is not ours (Airflow's API away, say) keeps Airflow's plain retries.
    """
    rules = [_rule(kind) for kind in leaves()]
    rules += [
        RetryRule(exception=[*_BUGS], action=RetryAction.FAIL, reason="a bug: trying again cannot help"),
        RetryRule(
            exception=["airflow.sdk.exceptions.TaskDeferralTimeout", "airflow.sdk.exceptions.TaskDeferralError"],
            action=RetryAction.RETRY,
            retry_delay=DELAYS[errors.Retry.SOON],
            reason="the wait was interrupted; the next try re-attaches",
        )
    ]
    return ExceptionRetryPolicy(rules=rules)


def _rule(kind: type[errors.TPUError]) -> RetryRule:
    path = f"{kind.__module__}.{kind.__qualname__}"
    if kind.retry is errors.Retry.NEVER:
        return RetryRule(exception=path, action=RetryAction.FAIL, reason=f"{kind.__name__}: trying again cannot help")
    return RetryRule(
        exception=path,
        action=RetryAction.RETRY,
        retry_delay=DELAYS[kind.retry],
        reason=f"{kind.__name__}: {kind.budget.value} budget",
    )
