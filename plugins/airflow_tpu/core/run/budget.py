"""How often a run may be interrupted: what Airflow's one ``retries`` cannot express.

Preemptions and lost hosts draw on a budget of their own, which a person sets in the form; failures of the user's code
never reach it. A run that keeps losing its TPU without a new checkpoint makes no progress, however large the budget is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_tpu.errors import Budget, BudgetExhausted, Retry, StockOut, TPUError

NO_PROGRESS_LIMIT = 3
"""Attempts in a row without a newer checkpoint after which a run is given up."""


@dataclass(frozen=True)
class Spent:
    """What a run has used of its budget of interruptions; kept in its run record.

    :param losses: interruptions so far.
    :param idle: interrupted attempts in a row that left no newer checkpoint behind.
    :param step: training steps of the newest checkpoint that is safe, -1 for none.
    """

    losses: int = 0
    idle: int = 0
    step: int = -1

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
            self, losses=self.losses + 1, idle=idle, step=step if progressed and step is not None else self.step
        )

    def exhausted(self, error: TPUError, allowed: int, checkpoints: bool) -> BudgetExhausted | None:
        """Return the error that ends the run, None while one more attempt is allowed.

        :param error: the loss that was just counted.
        :param allowed: how many losses the form allows.
        :param checkpoints: the run saves checkpoints: only then does their absence mean no progress.
        """
        if not counts(error):
            return None
        if self.losses > allowed:
            return BudgetExhausted(
                f"the run was interrupted {self.losses} times and max_preemptions is {allowed}. Its newest checkpoint "
                f"({self._where()}) is kept: raise the limit and clear the run to resume there. The last loss: {error}"
            )
        if checkpoints and self.idle >= NO_PROGRESS_LIMIT:
            return BudgetExhausted(
                f"{self.idle} attempts in a row ended without a newer checkpoint ({self._where()}): save more often "
                f"than the TPU is taken away. The last loss: {error}"
            )
        return None

    def _where(self) -> str:
        return f"step {self.step}" if self.step >= 0 else "none"


def counts(error: TPUError) -> bool:
    """Whether an error is a loss: infrastructure, worth another attempt, and not a mere wait for capacity."""
    return error.budget is Budget.INFRASTRUCTURE and error.retry is not Retry.NEVER and not isinstance(error, StockOut)
