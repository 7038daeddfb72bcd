# SPDX-License-Identifier: Apache-2.0
"""Random histories: whatever callers and faults do, in any order, the cloud keeps its own rules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.types import Node, QueuedResourceState
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localcloud.rules.errors import CloudError
from localcloud.tpu_state.nodes.registry import Transition
from localcloud.virtual_cloud import PARENT, VirtualCloud, make_virtual_cloud

State = Node.State
ACTIVE, SUSPENDED, FAILED = (getattr(QueuedResourceState.State, name) for name in ("ACTIVE", "SUSPENDED", "FAILED"))
IDS = ("a", "b")


def delete_node(cloud: VirtualCloud, node_id: str) -> None:
    """Delete a node of any owner."""
    cloud.call("Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/{node_id}"))


def delete_queued(cloud: VirtualCloud, node_id: str) -> None:
    """Delete a queued resource by force."""
    name = f"{PARENT}/queuedResources/q-{node_id}"
    cloud.call("Tpu/DeleteQueuedResource", tpu_v2.DeleteQueuedResourceRequest(name=name, force=True))


def enqueue(cloud: VirtualCloud, node_id: str) -> None:
    """Ask for a node through a queued resource."""
    cloud.enqueue(f"q-{node_id}", node_id=node_id)


ACTIONS: dict[str, Callable[[VirtualCloud, str], object]] = {
    "create": lambda cloud, node_id: cloud.create(node_id),
    "enqueue": enqueue,
    "delete": delete_node,
    "delete queued": delete_queued,
    "preempt": lambda cloud, node_id: cloud.state.shutdown.preempt(cloud.state.node(node_id)),
    "warn": lambda cloud, node_id: cloud.state.shutdown.preempt(cloud.state.node(node_id), notice=0.2),
    "stop": lambda cloud, node_id: cloud.call("Tpu/StopNode", tpu_v2.StopNodeRequest(name=f"{PARENT}/nodes/{node_id}")),
    "start": lambda cloud, node_id: cloud.call(
        "Tpu/StartNode", tpu_v2.StartNodeRequest(name=f"{PARENT}/nodes/{node_id}")
    ),
}
STEP = st.tuples(st.sampled_from(sorted(ACTIONS)), st.sampled_from(["a", "a", "a", "b"]), st.sampled_from([0.05, 0.6]))
# Every history begins with a node that comes up, since most actions are refused without one.
BIRTH = st.tuples(st.sampled_from(["create", "enqueue"]), st.just("a"), st.just(0.6))
STEPS = st.lists(st.tuples(BIRTH, STEP, STEP), min_size=1, max_size=8).map(
    lambda lives: [step for life in lives for step in life]
)


class Watch:
    """Adds up READY seconds from the transitions, by a way of its own."""

    def __init__(self) -> None:
        self.total = 0.0
        self._since: dict[int, float] = {}

    def observe(self, transition: Transition) -> None:
        """Add what a node has been READY until now."""
        uid = transition.record.uid
        if transition.old == State.READY:
            self.total += transition.seconds - self._since.pop(uid)
        if transition.new == State.READY:
            self._since[uid] = transition.seconds


def play(steps: list[tuple[str, str, float]]) -> tuple[VirtualCloud, Watch]:
    """Run a history; a refused call is expected, anything else that is raised is a mistake of the cloud."""
    cloud, watch = make_virtual_cloud(), Watch()
    cloud.state.nodes.listeners.append(watch.observe)
    for action, node_id, seconds in steps:
        with suppress(CloudError):
            ACTIONS[action](cloud, node_id)
        cloud.pass_time(seconds)
    return cloud, watch


def open_operations(cloud: VirtualCloud) -> list[str]:
    """Return the operations that have not ended."""
    return [f"{one.metadata.verb} {one.metadata.target}" for one in cloud.state.operations.all() if not one.done]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_a_cloud_at_rest_is_consistent(steps: list[tuple[str, str, float]]) -> None:
    """Once nothing moves, operations have ended, exactly READY nodes have VMs, and only their requests are ACTIVE."""
    cloud, _ = play(steps)
    cloud.pass_time(10)
    records = cloud.state.nodes.records.values()
    assert open_operations(cloud) == []
    assert {record.state for record in records} <= {State.READY, State.PREEMPTED, State.STOPPED}
    assert set(cloud.machines.running) == {record.name for record in records if record.state == State.READY}
    for request in cloud.state.queued.records.values():
        states = [node.state for node in cloud.state.suspension.live_nodes(request)]
        assert (request.state, states) in [(ACTIVE, [State.READY]), (SUSPENDED, []), (FAILED, [])]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_everything_can_be_deleted(steps: list[tuple[str, str, float]]) -> None:
    """After any history deletes remove every node and request, hold no quota, and the meter has stopped."""
    cloud, watch = play(steps)
    for node_id in IDS:
        for action in ("delete queued", "delete"):
            with suppress(CloudError):
                ACTIONS[action](cloud, node_id)
    cloud.pass_time(10)
    billed = cloud.meter.ready_seconds()
    cloud.pass_time(3600)
    assert (cloud.state.held(), cloud.machines.running, cloud.state.snapshot()["nodes"]) == ([], {}, [])
    assert cloud.meter.ready_seconds() == billed == pytest.approx(watch.total)
