# SPDX-License-Identifier: Apache-2.0
"""Faults: how they match, how often they strike, what is left over, and what they do to nodes and operations."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.types import Node

from localcloud.faults import FaultRegistry, FaultSpecError
from localcloud.rules.errors import CloudError
from localcloud.virtual_cloud import PARENT, VirtualCloud, fault, make_virtual_cloud

State = Node.State


@pytest.fixture
def cloud() -> VirtualCloud:
    """A virtual cloud with default settings."""
    return make_virtual_cloud()


def test_a_fault_lets_some_pass_and_strikes_some() -> None:
    """``after`` matching events pass, ``times`` are spoilt, later ones pass again."""
    faults = FaultRegistry()
    faults.add({"point": "gcs.request", "match": {"object": "ckpt/*"}, "times": 2, "after": 1})
    struck = [
        faults.take("gcs.request", object=name) is not None for name in ["ckpt/1", "x", "ckpt/2", "ckpt/3", "ckpt/4"]
    ]
    assert struck == [False, False, True, True, False]


def test_a_fault_strikes_one_in_so_many() -> None:
    """``every`` of 3 spoils the third and the sixth of the events that are not let pass."""
    faults = FaultRegistry()
    faults.add({"point": "gcs.request", "times": 9, "after": 1, "every": 3})
    struck = [faults.take("gcs.request") is not None for _ in range(8)]
    assert struck == [False, False, False, True, False, False, True, False]


def test_a_report_tells_what_was_used() -> None:
    """The report counts uses, and what is not wholly used up is named."""
    faults = FaultRegistry()
    faults.add({"id": "used", "point": "tpu.call", "match": {"method": "Get*"}})
    faults.add({"id": "half", "point": "tpu.call", "times": 2})
    faults.take("tpu.call", method="GetNode")
    faults.take("tpu.call", method="GetNode")
    assert [(row["id"], row["used"]) for row in faults.report()] == [("used", 1), ("half", 1)]
    assert faults.unused() == ["half"]


def test_an_attribute_that_is_missing_does_not_match() -> None:
    """A pattern on an attribute that the event lacks matches only if it matches nothing at all."""
    faults = FaultRegistry()
    faults.add({"point": "vm.ssh", "match": {"worker": "0"}})
    assert faults.take("vm.ssh", node="n") is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"point": "nowhere"}, ["unknown point 'nowhere'"]),
        ({"point": "vm.ssh", "times": 0, "after": -1, "when": 1}, ["times", "after", "unknown key 'when'"]),
        ({"point": "vm.ssh", "times": True}, ["times"]),
        ({"point": "vm.ssh", "match": "x"}, ["match"]),
        ({}, ["unknown point None"]),
    ],
)
def test_a_malformed_fault_is_refused_with_every_mistake(spec: dict[str, Any], words: list[str]) -> None:
    """A fault that could never strike is refused, and the message lists all of its mistakes."""
    with pytest.raises(FaultSpecError) as caught:
        FaultRegistry().add(spec)
    assert [word for word in words if word not in str(caught.value)] == []


def test_an_id_is_used_once() -> None:
    """Two faults cannot share an id."""
    faults = FaultRegistry()
    faults.add({"id": "same", "point": "vm.ssh"})
    with pytest.raises(FaultSpecError, match="same"):
        faults.add({"id": "same", "point": "vm.ssh"})


def test_a_stock_out_arrives_in_the_operation_and_leaves_nothing(cloud: VirtualCloud) -> None:
    """The call succeeds, the operation fails with code 8, and the node is gone without having booted."""
    message = 'There is no more capacity in the zone "europe-west4-b"'
    cloud.faults.add(fault("tpu.operation", {"verb": "create"}, action="error", code=8, message=message, after=71))
    name = cloud.create().name
    cloud.pass_time(70)
    assert (cloud.operation(name).done, cloud.node().state) == (False, State.CREATING)
    cloud.pass_time(2)
    assert (cloud.operation(name).error.code, cloud.operation(name).error.message) == (8, message)
    with pytest.raises(CloudError, match="was not found"):
        cloud.node()
    assert cloud.meter.ready_seconds() == 0


def test_an_operation_may_fail_although_the_node_comes_up(cloud: VirtualCloud) -> None:
    """With ``resource: proceeds`` the operation says code 13 and the node is READY: describe before you give up."""
    cloud.faults.add(fault("tpu.operation", action="error", code=13, resource="proceeds"))
    name = cloud.create().name
    cloud.pass_time(1)
    assert (cloud.operation(name).error.code, cloud.node().state) == (13, State.READY)


def test_an_operation_may_never_end(cloud: VirtualCloud) -> None:
    """A never-ending operation is not done after a day although its node is READY."""
    cloud.faults.add(fault("tpu.operation", action="never"))
    name = cloud.create().name
    cloud.pass_time(24 * 3600)
    assert (cloud.operation(name).done, cloud.node().state) == (False, State.READY)


def test_a_node_may_be_stuck_with_its_operation(cloud: VirtualCloud) -> None:
    """With ``resource: stuck`` the node stays in CREATING for ever."""
    cloud.faults.add(fault("tpu.operation", action="never", resource="stuck"))
    cloud.create()
    cloud.pass_time(24 * 3600)
    assert cloud.node().state == State.CREATING


def test_an_operation_may_be_slow(cloud: VirtualCloud) -> None:
    """A slow operation is done only some time after its node is READY."""
    cloud.faults.add(fault("tpu.operation", action="slow", seconds=100))
    name = cloud.create().name
    cloud.pass_time(100)
    assert (cloud.operation(name).done, cloud.node().state) == (False, State.READY)
    cloud.pass_time(1)
    assert cloud.operation(name).done


def test_a_node_may_be_late_with_its_operation(cloud: VirtualCloud) -> None:
    """With ``resource: late`` the node is CREATING for as long as its operation runs, and both end together."""
    cloud.faults.add(fault("tpu.operation", action="slow", resource="late", seconds=100))
    name = cloud.create().name
    cloud.pass_time(100)
    assert (cloud.operation(name).done, cloud.node().state) == (False, State.CREATING)
    cloud.pass_time(1)
    assert (cloud.operation(name).done, cloud.node().state) == (True, State.READY)


def test_an_operation_may_be_forgotten(cloud: VirtualCloud) -> None:
    """A forgotten operation is NOT_FOUND although its node comes up."""
    cloud.faults.add(fault("tpu.operation", action="forget"))
    name = cloud.create().name
    cloud.pass_time(1)
    with pytest.raises(CloudError) as caught:
        cloud.operation(name)
    assert (caught.value.code, cloud.node().state) == (5, State.READY)


def test_a_delete_may_fail_and_be_repeated(cloud: VirtualCloud) -> None:
    """A failed delete puts the node back; the next one removes it."""
    from google.cloud import tpu_v2

    cloud.create()
    cloud.pass_time(1)
    cloud.faults.add(fault("tpu.operation", {"verb": "delete"}, action="error", code=13))
    request = tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/node-1")
    first = cloud.call("Tpu/DeleteNode", request).name
    cloud.pass_time(1)
    assert (cloud.operation(first).error.code, cloud.node().state) == (13, State.READY)
    second = cloud.call("Tpu/DeleteNode", request).name
    cloud.pass_time(1)
    assert cloud.operation(second).done
    assert cloud.state.nodes.records == {}


def test_a_node_is_preempted_at_a_time(cloud: VirtualCloud) -> None:
    """``preempt_after`` strikes that many seconds after READY, only the node it names."""
    cloud.faults.add(fault("node.timeline", {"node": "node-1"}, preempt_after=60))
    cloud.create("node-1")
    cloud.create("node-2")
    cloud.pass_time(60.2)
    assert cloud.node("node-1").state == State.READY
    cloud.pass_time(0.2)
    assert (cloud.node("node-1").state, cloud.node("node-2").state) == (State.PREEMPTED, State.READY)


def test_a_node_is_preempted_at_a_step(cloud: VirtualCloud) -> None:
    """``preempt_at_step`` strikes when the training reports the step, not before."""
    cloud.faults.add(fault("node.timeline", preempt_at_step=100))
    cloud.create()
    cloud.pass_time(1)
    name = f"{PARENT}/nodes/node-1"
    cloud.machines.reach(name, 99)
    assert cloud.node().state == State.READY
    cloud.machines.reach(name, 100)
    assert cloud.node().state == State.PREEMPTED


def test_maintenance_reboots_the_vms(cloud: VirtualCloud) -> None:
    """Under maintenance the node is READY but unhealthy and without VMs; afterwards it is HEALTHY again."""
    cloud.faults.add(fault("node.timeline", maintenance_after=10, seconds=60))
    cloud.create()
    cloud.pass_time(11)
    node = cloud.node()
    assert (node.state, node.health) == (State.READY, Node.Health.UNHEALTHY_MAINTENANCE)
    assert cloud.machines.running == {}
    cloud.pass_time(60)
    assert (cloud.node().health, len(cloud.machines.running)) == (Node.Health.HEALTHY, 1)


def test_health_may_change(cloud: VirtualCloud) -> None:
    """A fault may set any health, for example of the in-guest stack."""
    cloud.faults.add(fault("node.timeline", health_after=1, health=4))
    cloud.create()
    cloud.pass_time(2)
    assert cloud.node().health == Node.Health.UNHEALTHY_TENSORFLOW


def test_addresses_may_be_hidden(cloud: VirtualCloud) -> None:
    """A node may be READY for a while before it shows the endpoints of its workers."""
    cloud.faults.add(fault("node.timeline", hidden=30))
    cloud.create()
    cloud.pass_time(20)
    assert (cloud.node().state, list(cloud.node().network_endpoints)) == (State.READY, [])
    cloud.pass_time(30)
    assert len(cloud.node().network_endpoints) == 1


@pytest.mark.filterwarnings("ignore:Unrecognized State enum value")
def test_a_request_may_show_a_state_that_no_client_knows(cloud: VirtualCloud) -> None:
    """A future state number of a queued resource is shown as it is, and the request can still be deleted."""
    cloud.faults.add(fault("queued.timeline", wait="forever", state=77))
    cloud.enqueue()
    cloud.pass_time(1)
    assert cloud.queued().state.state == 77
    cloud.call("Tpu/DeleteQueuedResource", tpu_v2.DeleteQueuedResourceRequest(name=cloud.queued().name, force=True))
    cloud.pass_time(1)
    assert cloud.state.queued.records == {}


@pytest.mark.parametrize(("fails_after", "then"), [(None, "DELETING"), (5.0, "WAITING_FOR_RESOURCES")])
def test_a_request_may_stay_in_its_delete(cloud: VirtualCloud, fails_after: float | None, then: str) -> None:
    """A queued resource whose delete hangs shows DELETING; one whose delete fails is shown as before after that."""
    params = {"action": "never", "resource": "stuck"} if fails_after is None else {"after": fails_after}
    cloud.faults.add(fault("queued.timeline", wait="forever"))
    cloud.enqueue()
    cloud.pass_time(1)
    cloud.faults.add(fault("tpu.operation", {"verb": "delete"}, **params))
    cloud.call("Tpu/DeleteQueuedResource", tpu_v2.DeleteQueuedResourceRequest(name=cloud.queued().name, force=True))
    assert cloud.queued().state.state.name == "DELETING"
    cloud.pass_time(60)
    assert cloud.queued().state.state.name == then


@pytest.mark.filterwarnings("ignore:Unrecognized State enum value")
def test_a_state_may_be_one_that_no_client_knows(cloud: VirtualCloud) -> None:
    """A future state number is shown as it is, stops the meter, and the node can still be deleted."""
    cloud.faults.add(fault("node.timeline", states=[[1, 99]]))
    cloud.create()
    cloud.pass_time(10)
    assert cloud.node().state == 99
    assert cloud.meter.ready_seconds() == pytest.approx(1)
    assert cloud.state.snapshot()["nodes"][0]["state"] == "99"


def test_a_node_may_go_through_scripted_states(cloud: VirtualCloud) -> None:
    """A script of states and times is followed, and the meter counts only what was READY of it."""
    states = [[10, State.REPAIRING], [30, State.READY], [40, State.UNKNOWN]]
    cloud.faults.add(fault("node.timeline", states=states))
    cloud.create()
    seen = []
    for _ in range(5):
        cloud.pass_time(10)
        seen.append(cloud.node().state)
    assert seen == [State.READY, State.REPAIRING, State.REPAIRING, State.READY, State.UNKNOWN]
    assert cloud.meter.ready_seconds() == pytest.approx(20)
