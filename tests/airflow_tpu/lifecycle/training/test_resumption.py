# SPDX-License-Identifier: Apache-2.0
"""What a result says of checkpoints: how safe a stop was, where a run resumed, and what had been lost."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_tpu.core.run.result import RunResult, classify_exit, resumption
from airflow_tpu.errors import RunFailed, StorageUnreachable


def at(second: float) -> datetime:
    """An instant."""
    return datetime.fromtimestamp(second, tz=UTC)


def test_a_run_that_began_anew_resumed_nothing() -> None:
    """Without a checkpoint from the bucket there is nothing to say."""
    assert resumption(RunResult(0), [at(10.0)]) == ""


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([at(50.0), at(107.4), at(300.0)], "resumed from step 40 (attempt 1 lost 7 s of work)"),
        ([at(100.0)], "resumed from step 40 (attempt 1 lost 0 s of work)"),
        ([at(50.0)], "resumed from step 40 (attempt 1 had saved it)"),
        ([], "resumed from step 40 (attempt 1 had saved it)"),
    ],
)
def test_lost_is_what_lies_between_the_checkpoint_and_the_end_of_its_tpu(ends: list[datetime], words: str) -> None:
    """The first end of a TPU after the checkpoint counts; ends before it and of later TPUs do not."""
    result = RunResult(0, resumed_step=40, resumed_attempt=1, resumed_saved_at=100.0)
    assert resumption(result, ends) == words


def test_a_checkpoint_that_tells_neither_step_nor_time_is_still_named() -> None:
    """Files of a framework without manifests may have no step."""
    assert (
        resumption(RunResult(0, resumed_attempt=2), [at(1.0)]) == "resumed from a checkpoint (attempt 2 had saved it)"
    )


@pytest.mark.parametrize(("durable", "safe"), [(True, True), (None, True), (False, False)])
def test_a_stop_is_safe_only_if_the_checkpoint_left_the_machine(durable: bool | None, safe: bool) -> None:
    """Exit status 75 with a checkpoint that did not reach the bucket counts as work lost, and the reason is given."""
    error = classify_exit(RunResult(75, checkpoint_durable=durable, mirror_error="" if safe else "403 no access"))
    assert ("checkpoint safe" in str(error)) is safe
    assert ("403 no access" in str(error)) is not safe


def test_unreadable_checkpoints_are_retried_and_damaged_ones_are_not() -> None:
    """A restore that could not ask the bucket is tried again; one that found nothing whole fails for good."""
    unread = classify_exit(RunResult(74, step="restore"))
    assert isinstance(unread, StorageUnreachable)
    assert "starting from zero" in str(unread)
    assert isinstance(classify_exit(RunResult(66, step="restore")), RunFailed)
