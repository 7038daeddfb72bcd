# SPDX-License-Identifier: Apache-2.0
"""The window in which a run wants its first TPU: a night without capacity ends before the day, and costs nothing."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_tpu.core.request.run_conf import RunConf
    from airflow_tpu.core.run.run_record import RunRecord


def first_of(deadline: dt.datetime, closes: dt.datetime | None) -> dt.datetime:
    """When the wait for a TPU ends.

    :param deadline: of the run.
    :param closes: see :func:`closes_at`.
    """
    return deadline if closes is None else min(deadline, closes)


def closes_at(conf: RunConf, record: RunRecord) -> dt.datetime | None:
    """When a run that has no TPU yet wants none any more.

    A run that has had one continues until its deadline: a preemption does not make the work undone.

    :param conf: what was asked for.
    :param record: of the run; it ends ``deadline_hours`` after the run's start.
    :return: None if the run waits until its deadline.
    """
    if not conf.start_within_hours or any(life.ready_at is not None for life in record.lives.values()):
        return None
    started = record.lease.expires_at - dt.timedelta(hours=conf.deadline_hours)
    return started + dt.timedelta(hours=conf.start_within_hours)
