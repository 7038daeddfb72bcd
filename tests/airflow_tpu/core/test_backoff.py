# SPDX-License-Identifier: Apache-2.0
"""Pauses between two tries."""

from __future__ import annotations

import pytest
from tenacity import RetryError, Retrying, stop_after_attempt

from airflow_tpu.core.backoff import ExponentialBackoff


def test_pauses_grow_to_the_longest() -> None:
    """Each pause is longer than the one before by the factor, up to the longest, however many tries there were."""
    backoff = ExponentialBackoff(first=1.0, longest=15.0)
    assert [backoff.pause(tries) for tries in (1, 2, 3, 4, 5, 6, 2000)] == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


@pytest.mark.parametrize(("jitter", "least"), [(1.0, 0.0), (0.5, 4.0), (0.25, 6.0)])
def test_only_the_share_of_the_jitter_is_random(jitter: float, least: float) -> None:
    """A pause lies between its fixed share and its full length, and no two clients wait alike."""
    found = [ExponentialBackoff(1.0, 15.0, jitter=jitter).pause(4) for _ in range(200)]
    assert least <= min(found) < max(found) <= 8.0
    assert len(set(found)) > 100


def test_tenacity_waits_the_same_pauses() -> None:
    """A function that tenacity repeats waits as a loop with its own clock does."""
    slept: list[float] = []
    tries = Retrying(wait=ExponentialBackoff(0.5, 2.0).strategy, stop=stop_after_attempt(5), sleep=slept.append)
    with pytest.raises(RetryError):
        tries(lambda: 1 / 0)
    assert slept == [0.5, 1.0, 2.0, 2.0]
