# SPDX-License-Identifier: Apache-2.0
"""What the operators share."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.tpu import CloudTPUCreateOperator, CloudTPUDeleteOperator
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, context

SOON = 3.0
"""Seconds: a TPU that is READY is charged, or counted, from then on."""


@pytest.mark.parametrize("operator", [CloudTPUCreateOperator, CloudTPUDeleteOperator])
def test_wait_looks_every_three_seconds(operator: type[CloudTPUBaseOperator]) -> None:
    """A task that says nothing else looks twenty times a minute, in its worker and in the triggerer."""
    task = operator(task_id="task", conf={}, deferrable=False)
    watch = task.trigger_context(KEY, "token", dt.datetime.now(dt.UTC))
    assert (task.waiting().poll, watch["poll"]) == (SOON, SOON)


def test_a_task_knows_the_bundle_that_it_runs_from(env: CloudEnv) -> None:
    """Airflow gives each task the files of its DAG run's version; in ``dag.test()`` there are none."""
    task, bundle = CloudTPUCreateOperator(task_id="task", conf={}), SimpleNamespace(name="project")
    without = context()
    assert task.run_context(without).bundle is None
    running: Any = context()
    running["ti"].bundle_instance = bundle
    assert task.run_context(running).bundle is bundle
