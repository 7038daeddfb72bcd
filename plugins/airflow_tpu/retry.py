"""Airflow's retry policy, built from the marks of the error tree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from airflow_tpu import errors, settings

_LATER = 20
"""How many times longer than the usual delay it is waited for capacity, quota and rate limits: five minutes."""

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
            retry_delay=_delay(errors.Retry.SOON),
            reason="the wait was interrupted; the next try re-attaches",
        ),
    ]
    return ExceptionRetryPolicy(rules=rules)


def _rule(kind: type[errors.TPUError]) -> RetryRule:
    path = f"{kind.__module__}.{kind.__qualname__}"
    if kind.retry is errors.Retry.NEVER:
        return RetryRule(exception=path, action=RetryAction.FAIL, reason=f"{kind.__name__}: trying again cannot help")
    return RetryRule(
        exception=path,
        action=RetryAction.RETRY,
        retry_delay=_delay(kind.retry),
        reason=f"{kind.__name__}: {kind.budget.value} budget",
    )


def _delay(retry: errors.Retry) -> timedelta:
    factor = _LATER if retry is errors.Retry.LATER else 1
    return timedelta(seconds=settings.retry_seconds() * factor)
