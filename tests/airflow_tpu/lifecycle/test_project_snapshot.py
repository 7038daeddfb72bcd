# SPDX-License-Identifier: Apache-2.0
"""What of a project is a run's own, and can still be used."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_tpu.core.tpu.labels import LeaseStamp, labels
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import QueuedView, TPUView
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
from tests.airflow_tpu.cloud_env import KEY

MARKS = labels(KEY, LeaseStamp("token", dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC), 1))
NAME = node_name("p", "us-central1-f", KEY.node_id(1))


def seen(node: str, queued: str) -> ProjectSnapshot:
    """The project with one TPU of the run: its node and its queued resource in these states."""
    view = TPUView(NAME, node, labels=MARKS, queued_resource=NAME.queued)
    return ProjectSnapshot((view,), (QueuedView(NAME.queued, queued, labels=MARKS),), ())


@pytest.mark.parametrize("queued", ["DELETING", "SUSPENDING", "SUSPENDED", "FAILED"])
def test_a_node_whose_request_ends_is_not_used(queued: str) -> None:
    """It is READY for one more moment: a run that adopted it would lose it at once."""
    assert seen("READY", queued).living(KEY) is None


@pytest.mark.parametrize("queued", ["ACTIVE", "PROVISIONING", "99"])
def test_a_node_whose_request_lives_is_used(queued: str) -> None:
    """The lists are not of one moment, and a state of another release says nothing against it."""
    found = seen("READY", queued).living(KEY)
    assert found is not None
    assert found.name == NAME
