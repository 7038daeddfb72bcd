# SPDX-License-Identifier: Apache-2.0
"""How often a run may be interrupted: what Airflow's one ``retries`` cannot express.

Preemptions and lost hosts draw on a budget of their own, which a person sets in the form; failures of the user's code
never reach it. A run that keeps losing its TPU without a new checkpoint makes no progress, however large the budget is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_tpu.errors import (
    AcceleratorMissing,
    Budget,
    BudgetExhausted,
    Retry,
    RunInterrupted,
    RunStalled,
    SourceUnreachable,
    StockOut,
    TPUError,
)

NO_PROGRESS_LIMIT = 3
"""Attempts in a row without a newer checkpoint after which a run is given up."""


KILLED_LIMIT = 3
"""Attempts in a row that were killed on a TPU that lives, without a newer checkpoint, before memory is the cause."""

STALLED_LIMIT = 4
"""Attempts in a row that stalled without a newer checkpoint, two on each of two TPUs: then the script is the cause."""

MISSING_LIMIT = 3
"""TPUs in a row on which the script finds no device (exit 69) before its framework counts as the cause."""


@dataclass(frozen=True)
class Spent:
    """What a run has used of its budget of interruptions; kept in its run record.

    :param losses: interruptions so far.
    :param idle: interrupted attempts in a row that left no newer checkpoint behind.
    :param step: order of the newest checkpoint that is safe, its step where that is known; -1 for none.
    :param missing: attempts in a row that found no TPU device; each was on a TPU of its own, so each is a loss.
    :param killed: attempts in a row that were killed on a TPU that lived, without a newer checkpoint.
    :param stalled: attempts in a row that stalled, without a newer checkpoint.
    :param training: whose attempts and checkpoints these are; the losses are those of the whole session.
    """

    losses: int = 0
    idle: int = 0
    step: int = -1
    missing: int = 0
    training: str = ""
    killed: int = 0
    stalled: int = 0

    def of(self, training: str) -> Spent:
        """The same losses, as another training of the session goes on with them: its progress begins anew."""
        return self if training == self.training else Spent(losses=self.losses, training=training)

    def after(self, error: TPUError, step: int | None) -> Spent:
        """What is spent once an attempt has ended with this error.

        :param error: how it ended.
        :param step: training steps of the newest safe checkpoint, None if unknown.
        """
        if not counts(error):
            return self
        progressed = step is not None and step > self.step
        idle = 0 if progressed else self.idle + 1
        return replace(
            self,
            losses=self.losses + 1,
            idle=idle,
            step=step if progressed and step is not None else self.step,
            missing=self.missing + 1 if isinstance(error, AcceleratorMissing) else 0,
            killed=self.killed + 1 if _is_killed(error) and not progressed else 0,
            stalled=self.stalled + 1 if isinstance(error, RunStalled) and not progressed else 0,
        )

    def exhausted(self, error: TPUError, allowed: int, newest: str) -> BudgetExhausted | None:
        """Return the error that ends the run, None while one more attempt is allowed.

        :param error: the loss that was just counted.
        :param allowed: how many losses the form allows.
        :param newest: the newest checkpoint in words, empty for none: only a run that saves some makes no progress
            without a newer one.
        """
        if not counts(error):
            return None
        if self.missing >= MISSING_LIMIT:
            return BudgetExhausted(
                f"the script found no TPU device on {self.missing} TPUs in a row: its framework does not fit the "
                f"runtime version of the TPU. Change runtime_version or requirements, then clear the run. {error}"
            )
        if self.killed >= KILLED_LIMIT:
            return BudgetExhausted(
                f"the run was killed {self.killed} times in a row on a TPU that lives: its worker has most likely no "
                "memory left. Load less at once, or take a type with more memory, then clear the run: it resumes from "
                f"its newest checkpoint ({newest or 'none'}). {error}"
            )
        if self.stalled >= STALLED_LIMIT:
            return BudgetExhausted(
                f"the run has stalled {self.stalled} times in a row without a newer checkpoint, on more than one TPU: "
                "its script hangs. Mend it, then clear the run: it resumes from its newest checkpoint "
                f"({newest or 'none'}). {error}"
            )
        if self.losses > allowed:
            kept = newest or (f"step {self.step}" if self.step >= 0 else "none")
            return BudgetExhausted(
                f"the run was interrupted {self.losses} times and max_preemptions is {allowed}. Its newest checkpoint "
                f"({kept}) is kept: raise the limit and clear the run to resume there. The last loss: {error}"
            )
        if newest and self.idle >= NO_PROGRESS_LIMIT:
            return BudgetExhausted(
                f"{self.idle} attempts in a row ended without a newer checkpoint ({newest}): save more often "
                f"than the TPU is taken away. The last loss: {error}"
            )
        return None


def _is_killed(error: TPUError) -> bool:
    return isinstance(error, RunInterrupted) and error.killed


def counts(error: TPUError) -> bool:
    """Whether an error is a loss: infrastructure, worth another attempt, and not a mere wait before anything ran."""
    is_wait = isinstance(error, StockOut | SourceUnreachable)
    return error.budget is Budget.INFRASTRUCTURE and error.retry is not Retry.NEVER and not is_wait
