# SPDX-License-Identifier: Apache-2.0
"""What the operators share."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.tpu import CloudTPUCreateOperator, CloudTPUDeleteOperator
from tests.airflow_tpu.cloud_env import KEY

SOON = 3.0
"""Seconds: a TPU that is READY is charged, or counted, from then on."""


@pytest.mark.parametrize("operator", [CloudTPUCreateOperator, CloudTPUDeleteOperator])
def test_wait_looks_every_three_seconds(operator: type[CloudTPUBaseOperator]) -> None:
    """A task that says nothing else looks twenty times a minute, in its worker and in the triggerer."""
    task = operator(task_id="task", conf={}, deferrable=False)
    watch = task.trigger_context(KEY, "token", dt.datetime.now(dt.UTC))
    assert (task.waiting().poll, watch["poll"]) == (SOON, SOON)
