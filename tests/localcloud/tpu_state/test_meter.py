# SPDX-License-Identifier: Apache-2.0
"""The billing meter, in virtual time."""

from __future__ import annotations

import pytest
from google.cloud import tpu_v2

from localcloud.virtual_cloud import PARENT, make_virtual_cloud


def test_ready_seconds_are_counted_per_node_and_life() -> None:
    """Each life of a node is billed from READY to the end of READY, by its chips; CREATING and DELETING are free."""
    cloud = make_virtual_cloud()
    for seconds in (3600, 1800):
        cloud.create()
        cloud.pass_time(0.3 + seconds)
        cloud.call("Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/node-1"))
        cloud.pass_time(100)
    rows = cloud.meter.dump()["nodes"]
    assert [row["ready_seconds"] for row in rows] == pytest.approx([3600, 1800])
    assert [row["chip_hours"] for row in rows] == pytest.approx([8, 4])
    assert [(row["gone"], row["tier"], row["chips"]) for row in rows] == [(True, "spot", 8)] * 2
    assert rows[0]["uid"] != rows[1]["uid"]


def test_a_running_node_is_billed_up_to_now() -> None:
    """A node that is still READY counts up to the present instant and its interval is open."""
    cloud = make_virtual_cloud()
    cloud.create()
    cloud.pass_time(10.3)
    row = cloud.meter.dump()["nodes"][0]
    assert (row["ready_seconds"], row["ready"][0]["end"]) == (pytest.approx(10), None)


def test_a_preempted_node_is_not_billed_any_more() -> None:
    """The meter stops at the preemption although the node keeps its name."""
    cloud = make_virtual_cloud()
    cloud.create()
    cloud.pass_time(5.3)
    cloud.state.shutdown.preempt(cloud.state.node("node-1"))
    cloud.pass_time(1000)
    assert cloud.meter.ready_seconds("node-1") == pytest.approx(5)


def test_a_stopped_node_is_not_billed_while_stopped() -> None:
    """Stopping ends an interval and starting opens another one in the same life."""
    cloud = make_virtual_cloud()
    cloud.create()
    cloud.pass_time(10.3)
    name = f"{PARENT}/nodes/node-1"
    cloud.call("Tpu/StopNode", tpu_v2.StopNodeRequest(name=name))
    cloud.pass_time(1000)
    cloud.call("Tpu/StartNode", tpu_v2.StartNodeRequest(name=name))
    cloud.pass_time(20.1)
    row = cloud.meter.dump()["nodes"][0]
    assert (len(row["ready"]), row["ready_seconds"]) == (2, pytest.approx(30))
