# SPDX-License-Identifier: Apache-2.0
"""Pauses that grow from try to try: the one place that computes them, by tenacity's wait strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tenacity.wait import wait_base


@dataclass(frozen=True)
class ExponentialBackoff:
    """How long to wait between two tries; how often and until when is for the caller, and its clock, to say.

    Google's clients repeat a call with a back-off of their own (:mod:`airflow_tpu.clients.tpu_retry`), and the program
    on the TPU VM has the standard library only.

    :param first: seconds after the first try.
    :param longest: seconds at the most.
    :param factor: by which each pause is longer than the one before.
    :param jitter: share of a pause that is random, from 0 to 1, so that many who wait do not come back together.
    """

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.0

    @property
    def strategy(self) -> wait_base:
        """The pauses for a :class:`tenacity.Retrying`."""
        from tenacity import wait_exponential, wait_random_exponential

        fixed, random = 1.0 - self.jitter, self.jitter
        return wait_exponential(
            multiplier=fixed * self.first, max=fixed * self.longest, exp_base=self.factor
        ) + wait_random_exponential(multiplier=random * self.first, max=random * self.longest, exp_base=self.factor)

    def pause(self, tries: int) -> float:
        """Return the seconds to wait after so many tries, for a loop that sleeps by a clock of its own.

        :param tries: at least 1.
        """
        from tenacity import RetryCallState

        state = RetryCallState(cast(Any, None), None, (), {})
        state.attempt_number = tries
        return self.strategy(state)
