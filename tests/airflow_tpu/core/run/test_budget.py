# SPDX-License-Identifier: Apache-2.0
"""Two budgets: losses of the TPU, and attempts without progress."""

from __future__ import annotations

import pytest

from airflow_tpu.core import json_form
from airflow_tpu.core.run.budget import MISSING_LIMIT, NO_PROGRESS_LIMIT, STALLED_LIMIT, Spent
from airflow_tpu.errors import (
    AcceleratorMissing,
    ConnectionFailed,
    QuotaZero,
    RunFailed,
    RunInterrupted,
    RunStalled,
    StockOut,
    TPUError,
    TPUPreempted,
)

LOSS = TPUPreempted("gone")


def lose(*steps: int | None) -> Spent:
    """What is spent after one preemption for each of these newest checkpoints."""
    spent = Spent()
    for step in steps:
        spent = spent.after(LOSS, step)
    return spent


def test_as_many_losses_as_allowed_and_not_one_more() -> None:
    """With two allowed, the second loss is survived and the third ends the run."""
    assert lose(10, 20).exhausted(LOSS, allowed=2, newest="step 100") is None
    assert "max_preemptions is 2" in str(lose(10, 20, 30).exhausted(LOSS, allowed=2, newest="step 100"))


def test_zero_allows_none() -> None:
    """A run that may not be interrupted ends with the first loss."""
    assert lose(10).exhausted(LOSS, allowed=0, newest="step 100") is not None


@pytest.mark.parametrize("error", [RunFailed("bug", 1), QuotaZero("none"), StockOut("full")])
def test_what_is_no_loss_spends_nothing(error: TPUError) -> None:
    """The user's bug, a final refusal and a wait for capacity leave the budget alone."""
    assert Spent().after(error, 5) == Spent()
    assert lose(1, 2, 3).exhausted(error, allowed=0, newest="step 100") is None


def test_a_tpu_without_a_device_is_a_loss_and_few_in_a_row_are_the_software() -> None:
    """Exit 69 draws on max_preemptions, since each costs a TPU; three in a row end the run however many are allowed."""
    missing, spent = AcceleratorMissing("no device"), Spent()
    for _ in range(MISSING_LIMIT):
        assert spent.exhausted(missing, allowed=1000, newest="") is None
        spent = spent.after(missing, None)
    assert spent.losses == MISSING_LIMIT
    assert "runtime_version" in str(spent.exhausted(missing, allowed=1000, newest=""))
    assert spent.after(LOSS, None).exhausted(LOSS, allowed=1000, newest="") is None
    assert Spent().after(missing, None).exhausted(missing, allowed=0, newest="") is not None


def test_unreachable_host_is_a_loss() -> None:
    """A host that is READY and cannot be reached is replaced, and counts."""
    assert Spent().after(ConnectionFailed("silent"), None).losses == 1


def test_no_newer_checkpoint_in_several_attempts_ends_the_run() -> None:
    """A preemption every ten minutes and a checkpoint every twelve would never end: the run is stopped."""
    spent = lose(100, *[100] * NO_PROGRESS_LIMIT)
    assert "without a newer checkpoint (step 100)" in str(spent.exhausted(LOSS, allowed=1000, newest="step 100"))


def test_progress_resets_the_count() -> None:
    """One newer checkpoint is progress."""
    assert lose(100, 100, 100, 101).idle == 0


def test_without_checkpoints_only_the_number_of_losses_counts() -> None:
    """A script that saves nothing starts over each time; that is its own choice."""
    assert lose(None, None, None, None).exhausted(LOSS, allowed=10, newest="") is None


def test_a_run_that_is_killed_on_living_tpus_is_out_of_memory() -> None:
    """The kernel kills it again on every TPU: few tries, with or without checkpoints; a preemption is none of them."""
    killed, spent = RunInterrupted("signal 9"), Spent()
    killed.killed = True
    for _ in range(2):
        spent = spent.after(killed, None)
        assert spent.exhausted(killed, allowed=20, newest="") is None
    assert spent.after(LOSS, None).after(killed, None).exhausted(killed, allowed=20, newest="") is None
    assert spent.after(killed, 7).exhausted(killed, allowed=20, newest="step 7") is None
    last = spent.after(killed, None)
    assert "memory" in str(last.exhausted(killed, allowed=20, newest=""))
    asked = RunInterrupted("SIGTERM")
    assert spent.after(asked, None).exhausted(asked, allowed=20, newest="") is None


def test_a_script_that_hangs_on_two_tpus_is_not_started_for_ever() -> None:
    """Each stall costs an hour of a TPU: a few in a row end the run, with or without checkpoints."""
    stalled, spent = RunStalled("nothing changed"), Spent()
    for _ in range(STALLED_LIMIT):
        assert spent.exhausted(stalled, allowed=20, newest="") is None
        spent = spent.after(stalled, None)
    assert "its script hangs" in str(spent.exhausted(stalled, allowed=20, newest=""))
    assert spent.after(stalled, 7).exhausted(stalled, allowed=20, newest="step 7") is None
    assert spent.after(LOSS, None).exhausted(LOSS, allowed=20, newest="") is None


def test_json_form_reads_back_equal() -> None:
    """It survives the lease object."""
    assert json_form.from_json(Spent, json_form.to_json(lose(7, None))) == lose(7, None)
