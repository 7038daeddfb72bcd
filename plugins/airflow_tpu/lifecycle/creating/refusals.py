# SPDX-License-Identifier: Apache-2.0
"""Count creates that fail in a row: what the API refuses for good costs three tries, not all of a run's."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_tpu.errors import CreateRefused, CreateUnanswered, TPUError, TransientError

if TYPE_CHECKING:
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.stores.runs import RunStore

log = logging.getLogger(__name__)

REFUSALS = 3
"""Creates in a row that may fail with an error which passes at times: each costs a try and an incarnation."""

UNANSWERED = 10
"""Creates in a row that may stay without an answer: an outage passes, and hides from no list for so many tries."""


def failure_counted(runs: RunStore, record: RunRecord, error: TransientError) -> TPUError:
    """The error of a create that failed; final once that has happened in several tries in a row.

    :param runs: where the numbers are kept.
    :param record: of the run, whose lease is ours.
    :param error: the API's answer to the create, in its call, its operation or its queued resource; or that it gave
        none, and no such TPU is known.
    """
    if not error.refused:
        return _unanswered(runs, record, error)
    error.refused = False  # counted
    number = runs.update(record, lambda now: replace(now, refusals=now.refusals + 1, unanswered=0)).refusals
    if number < REFUSALS:
        log.warning("create %d of at most %d in a row has failed; the next try creates anew", number, REFUSALS)
        return error
    # A person who clears the task has changed something, and gets as many tries.
    runs.update(record, lambda now: replace(now, refusals=0))
    return CreateRefused(
        f"{number} creates in a row have failed, so no more are tried. A service account, network or role that is "
        "missing fails every create, and so may a zone without capacity or external addresses: look at the last "
        f"answer, or choose another zone, then clear this task. {error.message}",
        error.reason,
    )


def _unanswered(runs: RunStore, record: RunRecord, error: TransientError) -> TPUError:
    number = runs.update(record, lambda now: replace(now, unanswered=now.unanswered + 1)).unanswered
    if number < UNANSWERED:
        log.warning("create %d of at most %d in a row was not answered; the next try looks again", number, UNANSWERED)
        return error
    runs.update(record, lambda now: replace(now, unanswered=0))
    return CreateUnanswered(
        f"{number} creates in a row were not answered, so no more are tried, and what they may have made is deleted. "
        "The API answers lists all the same: look at Google's status page and at proxies and firewalls between Airflow "
        f"and tpu.googleapis.com, or choose another zone, then clear this task. {error.message}",
        error.reason,
    )
