# SPDX-License-Identifier: Apache-2.0
"""How an incarnation ended, from what two lists say that were not read at the same moment."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_tpu.core.ledger.events import EndReason, TimeSource
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.core.tpu.spec import QueuedView, Tier, TPUView
from airflow_tpu.errors import TransientError
from airflow_tpu.lifecycle.ends.deletion import Release
from airflow_tpu.lifecycle.ends.end_reasons import endings_of
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NODE = node_name("p", "z", "n-1")


@pytest.mark.parametrize(
    ("node", "queued", "reason"),
    [
        ("CREATING", "PROVISIONING", EndReason.NEVER_READY),
        ("CREATING", "ACTIVE", EndReason.FINISHED),  # it became READY between the two lists, and is charged
        ("READY", "ACTIVE", EndReason.FINISHED),
        ("READY", "SUSPENDED", EndReason.PREEMPTED),
        ("PREEMPTED", "ACTIVE", EndReason.PREEMPTED),
        ("READY", "DELETING", EndReason.DELETED),  # it goes with its request
        ("CREATING", "DELETING", EndReason.NEVER_READY),
        ("READY", "99", EndReason.FINISHED),
        ("CREATING", "99", EndReason.FINISHED),  # what is unknown may be charged
        ("99", "ACTIVE", EndReason.FINISHED),
    ],
)
def test_the_later_list_counts_where_it_tells_more(node: str, queued: str, reason: EndReason) -> None:
    """The queued resources are listed after the nodes: what they say of a node may be newer than the node itself."""
    view = TPUView(NODE, node)
    request = QueuedView(NODE.queued, queued)
    (ending,) = endings_of(ProjectSnapshot((view,), (request,), ()), {}, NOW)
    assert ending.reason is reason


@pytest.mark.parametrize(
    ("state", "tier", "reason"),
    [
        ("STOPPED", Tier.SPOT, EndReason.PREEMPTED),
        ("STOPPED", Tier.ON_DEMAND, EndReason.DELETED),  # only a person stops such a TPU
        ("TERMINATED", Tier.ON_DEMAND, EndReason.FAILED),
        ("UNKNOWN", Tier.SPOT, EndReason.FAILED),  # its repair has failed
    ],
)
def test_only_what_google_took_back_is_preempted(state: str, tier: Tier, reason: EndReason) -> None:
    """A node that does not run any more has been preempted, stopped by a person, or ended by a failure."""
    (ending,) = endings_of(ProjectSnapshot((TPUView(NODE, state, tier=tier),), (), ()), {}, NOW)
    assert ending.reason is reason


@pytest.mark.parametrize("state", ["STARTING", "RESTARTING", "REIMAGING", "UNHIDING"])
def test_what_is_on_its_way_back_has_been_ready(state: str) -> None:
    """A node is in such a state only after it has been READY: it counts, though no look has ever found it READY."""
    (ending,) = endings_of(ProjectSnapshot((TPUView(NODE, state),), (), ()), {}, NOW)
    assert ending.reason is EndReason.FAILED


def test_what_came_late_is_looked_for_again() -> None:
    """A TPU that was found after the books were closed makes its teardown try again; nothing found lets it end."""
    Release([], []).check_none()
    with pytest.raises(TransientError, match="n-2 came while its run was being ended"):
        Release([IncarnationEnd("n-2", NOW, EndReason.NEVER_READY, TimeSource.OBSERVED)], []).check_none()


@pytest.mark.parametrize(("seconds", "reason"), [(9.0, EndReason.NEVER_READY), (11.0, EndReason.FINISHED)])
def test_what_was_on_its_way_long_before_its_delete_counts(seconds: float, reason: EndReason) -> None:
    """A laptop slept between the look and the delete: the TPU may have been READY meanwhile, so it counts in full."""
    seen = ProjectSnapshot((TPUView(NODE, "CREATING"),), (), (), at=NOW - dt.timedelta(seconds=seconds))
    (ending,) = endings_of(seen, {}, NOW)
    assert ending.reason is reason
