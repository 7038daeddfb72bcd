# SPDX-License-Identifier: Apache-2.0
"""The life of a queued resource, in virtual time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.types import Node, QueuedResourceState

from localcloud.rules.errors import CloudError
from localcloud.virtual_cloud import PARENT, VirtualCloud, fault, make_virtual_cloud

State = QueuedResourceState.State
NAME = f"{PARENT}/queuedResources/request-1"
METRIC = "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI@europe-west4-b"


@pytest.fixture
def cloud() -> VirtualCloud:
    """A virtual cloud with default settings."""
    return make_virtual_cloud()


def state(cloud: VirtualCloud) -> int:
    """Return the state of the request."""
    return int(cloud.queued().state.state)


def delete(cloud: VirtualCloud, *, force: bool = False, request_id: str = "") -> Any:
    """Ask for the deletion of the request."""
    request = tpu_v2.DeleteQueuedResourceRequest(name=NAME, force=force, request_id=request_id)
    return cloud.call("Tpu/DeleteQueuedResource", request)


def states_over(cloud: VirtualCloud, seconds: float, step: float = 0.01) -> list[int]:
    """Return the states a request goes through, in order."""
    seen = [state(cloud)]
    for _ in range(int(seconds / step)):
        cloud.pass_time(step)
        if state(cloud) != seen[-1]:
            seen.append(state(cloud))
    return seen


def test_a_request_becomes_active_through_its_states(cloud: VirtualCloud) -> None:
    """A request is CREATING, WAITING_FOR_RESOURCES, PROVISIONING and ACTIVE, in that order."""
    cloud.enqueue()
    expected = [State.CREATING, State.WAITING_FOR_RESOURCES, State.PROVISIONING, State.ACTIVE]
    assert states_over(cloud, 1) == expected
    node = cloud.node()
    assert (node.state, node.queued_resource, node.scheduling_config.spot) == (Node.State.READY, NAME, True)


def test_the_create_operation_ends_when_the_request_is_registered(cloud: VirtualCloud) -> None:
    """The operation is done long before there is a TPU."""
    name = cloud.enqueue().name
    cloud.pass_time(0.05)
    assert cloud.operation(name).done
    assert state(cloud) == State.WAITING_FOR_RESOURCES


def test_a_preemption_suspends_the_request_for_good(cloud: VirtualCloud) -> None:
    """The node is deleted, the request is SUSPENDED by the service and stays so."""
    cloud.enqueue()
    cloud.pass_time(1)
    cloud.state.shutdown.preempt(cloud.state.node("node-1"))
    assert states_over(cloud, 1) == [State.SUSPENDING, State.SUSPENDED]
    cloud.pass_time(3600)
    suspended = cloud.queued().state
    assert (suspended.state, suspended.state_initiator) == (State.SUSPENDED, QueuedResourceState.StateInitiator.SERVICE)
    with pytest.raises(CloudError, match="node-1"):
        cloud.node()


def test_deleting_the_node_suspends_the_request_by_the_user(cloud: VirtualCloud) -> None:
    """When the user deletes the node, the request is SUSPENDED with the user as initiator."""
    cloud.enqueue()
    cloud.pass_time(1)
    cloud.call("Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/node-1"))
    cloud.pass_time(1)
    suspended = cloud.queued().state
    assert (suspended.state, suspended.state_initiator) == (State.SUSPENDED, QueuedResourceState.StateInitiator.USER)


@pytest.mark.parametrize("ending", ["suspended", "failed"])
def test_dead_requests_hold_quota_until_deleted(ending: str) -> None:
    """SUSPENDED and FAILED requests keep their quota; after the delete the next create is accepted."""
    cloud = make_virtual_cloud(quota={METRIC: 8})
    if ending == "failed":
        cloud.faults.add(fault("queued.timeline", fail={"code": 8, "message": "no more capacity"}))
    cloud.enqueue()
    cloud.pass_time(1)
    if ending == "suspended":
        cloud.state.shutdown.preempt(cloud.state.node("node-1"))
        cloud.pass_time(1)
    assert cloud.queued().state.state == getattr(State, ending.upper())
    with pytest.raises(CloudError) as caught:
        cloud.create("node-2")
    metric = METRIC.partition("@")[0]
    expected = f"Quota limit '{metric}' has been exceeded. Limit: 8 in zone europe-west4-b."
    assert (caught.value.code, caught.value.message.partition(" [EID")[0]) == (8, expected)
    delete(cloud)
    cloud.pass_time(1)
    assert not cloud.create("node-2").done


def test_failed_requests_say_why(cloud: VirtualCloud) -> None:
    """A request that cannot be provisioned goes through SUSPENDING to FAILED and keeps the error."""
    cloud.faults.add(fault("queued.timeline", fail={"code": 8, "message": "You have reached IN_USE_ADDRESSES limit."}))
    cloud.enqueue()
    assert states_over(cloud, 1)[-3:] == [State.PROVISIONING, State.SUSPENDING, State.FAILED]
    error = tpu_v2.QueuedResource.pb(cloud.queued()).state.failed_data.error
    assert (error.code, error.message) == (8, "You have reached IN_USE_ADDRESSES limit.")


def test_a_request_may_wait_for_ever(cloud: VirtualCloud) -> None:
    """Without capacity a request stays WAITING_FOR_RESOURCES and can be deleted without force."""
    cloud.faults.add(fault("queued.timeline", wait="forever"))
    cloud.enqueue()
    cloud.pass_time(24 * 3600)
    assert state(cloud) == State.WAITING_FOR_RESOURCES
    delete(cloud)
    cloud.pass_time(1)
    with pytest.raises(CloudError, match="was not found"):
        cloud.queued()


def test_the_older_name_of_waiting_is_accepted(cloud: VirtualCloud) -> None:
    """A request may wait in ACCEPTED and then moves to PROVISIONING."""
    cloud.faults.add(fault("queued.timeline", accepted=True))
    cloud.enqueue()
    assert states_over(cloud, 1) == [State.CREATING, State.ACCEPTED, State.PROVISIONING, State.ACTIVE]


def test_validity_runs_out(cloud: VirtualCloud) -> None:
    """A request that is not active within its validity is FAILED."""
    cloud.faults.add(fault("queued.timeline", wait="forever"))
    cloud.enqueue(queueing_policy={"valid_until_duration": {"seconds": 60}})
    cloud.pass_time(59)
    assert state(cloud) == State.WAITING_FOR_RESOURCES
    cloud.pass_time(2)
    assert state(cloud) == State.FAILED


def test_capacity_that_comes_after_the_validity_is_not_given(cloud: VirtualCloud) -> None:
    """A request that would get its nodes days later gets none: it stays FAILED, and holds its quota until deleted."""
    cloud.faults.add(fault("queued.timeline", wait=3 * 24 * 3600))
    until = cloud.clock.now() + dt.timedelta(hours=1)
    cloud.enqueue(queueing_policy={"valid_until_time": until})
    cloud.pass_time(5 * 24 * 3600)
    assert (state(cloud), cloud.machines.running, cloud.state.nodes.records) == (State.FAILED, {}, {})
    assert cloud.queued().queueing_policy.valid_until_time == until


def test_validity_does_not_end_what_was_granted(cloud: VirtualCloud) -> None:
    """The end of the validity is for requests that wait: a node that was given stays."""
    cloud.enqueue(queueing_policy={"valid_until_duration": {"seconds": 60}})
    cloud.pass_time(3600)
    assert (state(cloud), len(cloud.machines.running)) == (State.ACTIVE, 1)


def test_validity_may_begin_later(cloud: VirtualCloud) -> None:
    """A request that is valid only after an hour waits for an hour."""
    cloud.enqueue(queueing_policy={"valid_after_duration": {"seconds": 3600}})
    cloud.pass_time(3599)
    assert state(cloud) == State.WAITING_FOR_RESOURCES
    cloud.pass_time(2)
    assert state(cloud) == State.ACTIVE


def test_delete_without_force_is_refused_while_nodes_live(cloud: VirtualCloud) -> None:
    """An ACTIVE request is deleted only with force; then its node goes first and the name stays taken meanwhile."""
    cloud.enqueue()
    cloud.pass_time(1)
    with pytest.raises(CloudError) as caught:
        delete(cloud)
    assert caught.value.code == 9
    operation = delete(cloud, force=True)
    assert (state(cloud), cloud.node().state) == (State.DELETING, Node.State.DELETING)
    with pytest.raises(CloudError, match="already exists"):
        cloud.enqueue()
    cloud.pass_time(1)
    assert cloud.operation(operation.name).done
    assert (cloud.state.queued.records, cloud.state.nodes.records, cloud.machines.running) == ({}, {}, {})


def test_a_repeated_create_with_its_request_id_changes_nothing(cloud: VirtualCloud) -> None:
    """The same request id gets the same operation; without it the second call is ALREADY_EXISTS."""
    first = cloud.enqueue(request_id="11111111-1111-1111-1111-111111111111")
    assert cloud.enqueue(request_id="11111111-1111-1111-1111-111111111111").name == first.name
    with pytest.raises(CloudError) as caught:
        cloud.enqueue(request_id="22222222-2222-2222-2222-222222222222")
    assert caught.value.code == 6


def test_a_repeated_delete_with_its_request_id_changes_nothing(cloud: VirtualCloud) -> None:
    """The same request id gets the same operation even when the request is long gone."""
    cloud.enqueue()
    cloud.pass_time(1)
    first = delete(cloud, force=True, request_id="33333333-3333-3333-3333-333333333333")
    cloud.pass_time(1)
    again = delete(cloud, force=True, request_id="33333333-3333-3333-3333-333333333333")
    assert (again.name, again.done) == (first.name, True)


def test_a_multislice_lives_and_dies_as_one(cloud: VirtualCloud) -> None:
    """Two slices become active together; the loss of one ends both and suspends the request."""
    spec = {
        "parent": PARENT,
        "node": {"accelerator_type": "v5litepod-16", "runtime_version": "v2-alpha-tpuv5-lite"},
        "multislice_params": {"node_count": 2, "node_id_prefix": "slice"},
    }
    cloud.enqueue(tpu={"node_spec": [spec]})
    cloud.pass_time(1)
    assert (state(cloud), len(cloud.machines.running)) == (State.ACTIVE, 2)
    assert cloud.state.node("slice-1").template.multislice_node
    cloud.state.shutdown.preempt(cloud.state.node("slice-0"))
    cloud.pass_time(1)
    assert (state(cloud), cloud.machines.running, cloud.state.nodes.records) == (State.SUSPENDED, {}, {})


@pytest.mark.parametrize("slices", [{"node_count": 1}, {"node_id_prefix": "slice"}])
def test_multislice_has_more_than_one_node(cloud: VirtualCloud, slices: dict[str, Any]) -> None:
    """A multislice of one node, or of none, is INVALID_ARGUMENT."""
    node = {"accelerator_type": "v5litepod-8", "runtime_version": "v2-alpha-tpuv5-lite"}
    with pytest.raises(CloudError) as caught:
        cloud.enqueue(tpu={"node_spec": [{"multislice_params": slices, "node": node}]})
    assert caught.value.code == 3


def test_only_one_node_spec_is_accepted(cloud: VirtualCloud) -> None:
    """A request with two specs is INVALID_ARGUMENT although the field is a list."""
    spec = {"node_id": "x", "node": {"accelerator_type": "v5litepod-8", "runtime_version": "v2-alpha-tpuv5-lite"}}
    with pytest.raises(CloudError) as caught:
        cloud.enqueue(tpu={"node_spec": [spec, spec]})
    assert caught.value.code == 3


def test_a_regional_limit_wins_over_a_zonal_one() -> None:
    """A regional limit of 0 refuses although the zonal one would allow, and the text names the region."""
    cloud = make_virtual_cloud(quota={"TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI@europe-west4": 0})
    with pytest.raises(CloudError, match="Limit: 0 in region europe-west4"):
        cloud.enqueue()


def test_tiers_have_separate_quota() -> None:
    """On-demand nodes do not draw on the spot quota."""
    cloud = make_virtual_cloud(quota={METRIC: 0})
    assert not cloud.create(scheduling_config={}).done
    with pytest.raises(CloudError, match="Preemptible"):
        cloud.create("node-2")
