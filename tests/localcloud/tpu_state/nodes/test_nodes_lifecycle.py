# SPDX-License-Identifier: Apache-2.0
"""The life of a node, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.types import AcceleratorConfig, Node
from google.protobuf import field_mask_pb2

from localcloud.rules.errors import CloudError
from localcloud.virtual_cloud import PARENT, VirtualCloud, fault, make_virtual_cloud, spot_node

State = Node.State


@pytest.fixture
def cloud() -> VirtualCloud:
    """A virtual cloud with default settings."""
    return make_virtual_cloud()


def delete(cloud: VirtualCloud, node_id: str = "node-1") -> Any:
    """Ask for the deletion of a node."""
    return cloud.call("Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/{node_id}"))


def refusal(cloud: VirtualCloud, method: str, request: Any) -> CloudError:
    """Return the error that a call is refused with."""
    with pytest.raises(CloudError) as caught:
        cloud.call(method, request)
    return caught.value


def create_request(node: Node, node_id: str = "node-1", parent: str = PARENT) -> tpu_v2.CreateNodeRequest:
    """Return a create call."""
    return tpu_v2.CreateNodeRequest(parent=parent, node_id=node_id, node=node)


def test_a_node_is_ready_only_after_its_vms_have_booted(cloud: VirtualCloud) -> None:
    """A node stays in CREATING without addresses until its VMs answer, then is READY, HEALTHY and has an endpoint."""
    operation = cloud.create()
    before = cloud.node()
    cloud.pass_time(0.3)
    after = cloud.node()
    assert (before.state, list(before.network_endpoints), operation.done) == (State.CREATING, [], False)
    assert (after.state, after.health) == (State.READY, Node.Health.HEALTHY)
    assert after.network_endpoints[0].ip_address.startswith("127.")
    assert cloud.operation(operation.name).done


def test_the_operation_tells_target_verb_and_times(cloud: VirtualCloud) -> None:
    """Operation metadata holds what was asked of which resource, when, and when it ended."""
    name = cloud.create().name
    cloud.pass_time(0.3)
    metadata = tpu_v2.OperationMetadata.pb(tpu_v2.OperationMetadata())
    assert cloud.operation(name).metadata.Unpack(metadata)
    took = metadata.end_time.ToNanoseconds() - metadata.create_time.ToNanoseconds()
    assert (metadata.target, metadata.verb, metadata.api_version) == (f"{PARENT}/nodes/node-1", "create", "v2")
    assert took == pytest.approx(0.3e9)


def test_every_worker_of_a_slice_has_an_endpoint(cloud: VirtualCloud) -> None:
    """A slice of four hosts shows four endpoints, external addresses only where they were asked for."""
    cloud.create("inside", accelerator_type="v5litepod-16")
    cloud.create("outside", accelerator_type="v5litepod-16", network_config={"enable_external_ips": True})
    cloud.pass_time(1)
    inside, outside = cloud.node("inside").network_endpoints, cloud.node("outside").network_endpoints
    assert [endpoint.access_config.external_ip for endpoint in inside] == ["", "", "", ""]
    assert [endpoint.access_config.external_ip for endpoint in outside] == [one.ip_address for one in outside]
    assert len({endpoint.ip_address for endpoint in outside}) == 4


def test_a_name_stays_taken_while_the_node_is_deleting(cloud: VirtualCloud) -> None:
    """A second create is ALREADY_EXISTS until the delete is complete, then succeeds with a new id."""
    cloud.create()
    cloud.pass_time(1)
    first = cloud.node().id
    operation = delete(cloud)
    assert cloud.node().state == State.DELETING
    assert refusal(cloud, "Tpu/CreateNode", create_request(spot_node())).code == 6
    cloud.pass_time(0.2)
    assert cloud.operation(operation.name).done
    cloud.create()
    assert cloud.node().id != first


def test_a_deleted_node_is_not_found(cloud: VirtualCloud) -> None:
    """After its deletion a node is NOT_FOUND, and deleting it again is too."""
    cloud.create()
    delete(cloud)
    cloud.pass_time(1)
    error = refusal(cloud, "Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/node-1"))
    assert (error.code, "node-1" in error.message) == (5, True)


def test_a_second_delete_joins_the_first(cloud: VirtualCloud) -> None:
    """Deleting a node twice gives the same operation while it is DELETING."""
    cloud.create()
    cloud.pass_time(1)
    assert delete(cloud).name == delete(cloud).name


def test_deleting_a_node_in_creation_aborts_the_create(cloud: VirtualCloud) -> None:
    """A node may be deleted before it is READY; its create operation ends ABORTED and its VMs never start."""
    operation = cloud.create()
    cloud.pass_time(0.1)
    delete(cloud)
    cloud.pass_time(2)
    assert cloud.operation(operation.name).error.code == 10
    assert cloud.machines.running == {}
    assert cloud.meter.ready_seconds() == 0


def test_a_preempted_node_keeps_its_name_and_quota() -> None:
    """A preempted direct node is PREEMPTED without VMs, and holds its name and quota until it is deleted."""
    metric = "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI@europe-west4-b"
    cloud = make_virtual_cloud(quota={metric: 8})
    cloud.create()
    cloud.pass_time(1)
    cloud.state.shutdown.preempt(cloud.state.node("node-1"))
    assert (cloud.node().state, list(cloud.node().network_endpoints)) == (State.PREEMPTED, [])
    assert cloud.machines.running == {}
    assert refusal(cloud, "Tpu/CreateNode", create_request(spot_node())).code == 6
    assert refusal(cloud, "Tpu/CreateNode", create_request(spot_node(), "node-2")).code == 8
    delete(cloud)
    cloud.pass_time(1)
    cloud.create("node-2")
    assert cloud.node("node-2").state == State.CREATING


def test_a_notice_comes_before_the_end(cloud: VirtualCloud) -> None:
    """With a notice the VMs are warned first and the node is still READY until the notice is over."""
    cloud.create()
    cloud.pass_time(1)
    cloud.state.shutdown.preempt(cloud.state.node("node-1"), notice=30)
    cloud.pass_time(29)
    assert (cloud.machines.warned, cloud.node().state) == ([f"{PARENT}/nodes/node-1"], State.READY)
    cloud.pass_time(1)
    assert cloud.node().state == State.PREEMPTED


def test_preemptible_nodes_end_after_a_day(cloud: VirtualCloud) -> None:
    """The preemptible tier is TERMINATED after 24 hours, the spot tier has no such limit."""
    cloud.create("old-tier", scheduling_config={"preemptible": True})
    cloud.create("spot-tier")
    cloud.pass_time(24 * 3600 - 1)
    assert cloud.node("old-tier").state == State.READY
    cloud.pass_time(2)
    assert (cloud.node("old-tier").state, cloud.node("spot-tier").state) == (State.TERMINATED, State.READY)


def test_stop_and_start_keep_the_node(cloud: VirtualCloud) -> None:
    """A single-host node stops and starts again under the same name and id; it is not READY in between."""
    cloud.create()
    cloud.pass_time(1)
    name = f"{PARENT}/nodes/node-1"
    first = cloud.node().id
    cloud.call("Tpu/StopNode", tpu_v2.StopNodeRequest(name=name))
    assert cloud.node().state == State.STOPPING
    cloud.pass_time(1)
    assert (cloud.node().state, cloud.machines.running) == (State.STOPPED, {})
    operation = cloud.call("Tpu/StartNode", tpu_v2.StartNodeRequest(name=name))
    assert cloud.node().state == State.STARTING
    cloud.pass_time(1)
    assert (cloud.node().state, cloud.node().id, cloud.operation(operation.name).done) == (State.READY, first, True)


def test_deleting_a_stopping_node_aborts_the_stop(cloud: VirtualCloud) -> None:
    """The stop operation of a node that is deleted meanwhile ends ABORTED instead of staying open."""
    cloud.create()
    cloud.pass_time(1)
    stop = cloud.call("Tpu/StopNode", tpu_v2.StopNodeRequest(name=f"{PARENT}/nodes/node-1"))
    delete(cloud)
    cloud.pass_time(1)
    assert cloud.operation(stop.name).error.code == 10


def test_slices_cannot_be_stopped(cloud: VirtualCloud) -> None:
    """Stopping a multi-host slice is a failed precondition."""
    cloud.create(accelerator_type="v5litepod-16")
    cloud.pass_time(1)
    assert refusal(cloud, "Tpu/StopNode", tpu_v2.StopNodeRequest(name=f"{PARENT}/nodes/node-1")).code == 9


def test_update_replaces_what_the_mask_names(cloud: VirtualCloud) -> None:
    """UpdateNode replaces the whole of each named field and leaves the others."""
    cloud.create(labels={"a": "1", "b": "2"}, description="before")
    cloud.pass_time(1)
    changed = Node(name=f"{PARENT}/nodes/node-1", labels={"c": "3"}, metadata={"ssh-keys": "me:ssh-ed25519 AAAA me"})
    mask = field_mask_pb2.FieldMask(paths=["labels", "metadata"])
    cloud.call("Tpu/UpdateNode", tpu_v2.UpdateNodeRequest(node=changed, update_mask=mask))
    assert (dict(cloud.node().labels), cloud.node().description) == ({"c": "3"}, "before")
    assert cloud.machines.running[changed.name].metadata["ssh-keys"] == "me:ssh-ed25519 AAAA me"


@pytest.mark.parametrize("path", ["accelerator_type", "scheduling_config", "network_config"])
def test_update_refuses_other_fields(cloud: VirtualCloud, path: str) -> None:
    """A mask that names anything but the five updatable fields is INVALID_ARGUMENT."""
    cloud.create()
    request = tpu_v2.UpdateNodeRequest(
        node=Node(name=f"{PARENT}/nodes/node-1"), update_mask=field_mask_pb2.FieldMask(paths=[path])
    )
    assert refusal(cloud, "Tpu/UpdateNode", request).code == 3


def test_guest_attributes_appear_with_the_guest(cloud: VirtualCloud) -> None:
    """Host key and host name of each worker are NOT_FOUND before the boot and served per worker after it."""
    cloud.create(accelerator_type="v5litepod-16")
    request = tpu_v2.GetGuestAttributesRequest(name=f"{PARENT}/nodes/node-1", query_path="hostkeys/")
    error = refusal(cloud, "Tpu/GetGuestAttributes", request)
    assert (error.code, 'The "GuestAttributes" value "hostkeys/" was not found' in error.message) == (5, True)
    cloud.pass_time(1)
    answers = cloud.call("Tpu/GetGuestAttributes", request).guest_attributes
    keys = [answer.query_value.items[0] for answer in answers]
    assert [(item.namespace, item.key) for item in keys] == [("hostkeys", "ssh-ed25519")] * 4
    assert len({item.value for item in keys}) == 4


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"accelerator_type": "v5litepod-9"}, 3, 'accelerator type, "v5litepod-9", could not be found'),
        ({"accelerator_type": "v4-8"}, 3, 'zonal accelerator configurations for "europe-west4-b"'),
        ({"runtime_version": "tpu-vm-tf-9.9.9"}, 3, 'value "tpu-vm-tf-9.9.9" was not found'),
        ({"runtime_version": ""}, 3, '"runtime_version" is required'),
        ({"description": "x" * 513}, 3, "512"),
        ({"labels": {"Upper": "x"}}, 3, 'label key "Upper"'),
        ({"labels": {"ok": "Not.ok"}}, 3, 'label value "Not.ok"'),
        ({"network_config": {}, "network_configs": [{}]}, 3, "network_config"),
    ],
)
def test_bad_requests_are_refused(cloud: VirtualCloud, changes: dict[str, Any], code: int, text: str) -> None:
    """A create that Google would refuse is refused with its code and names the value; no node is left."""
    error = refusal(cloud, "Tpu/CreateNode", create_request(spot_node(**changes)))
    assert (error.code, text in error.message) == (code, True)
    assert cloud.state.nodes.records == {}


@pytest.mark.parametrize("node_id", ["", "has space", "a/b", "x" * 64])
def test_bad_ids_are_refused(cloud: VirtualCloud, node_id: str) -> None:
    """A node id outside the API's alphabet or length is INVALID_ARGUMENT."""
    assert refusal(cloud, "Tpu/CreateNode", create_request(spot_node(), node_id)).code == 3


def test_types_may_be_named_by_topology(cloud: VirtualCloud) -> None:
    """An accelerator config of generation and topology means the same as the type's name."""
    config = {"type_": AcceleratorConfig.Type.V5LITE_POD, "topology": "4x4"}
    cloud.create(accelerator_type="", accelerator_config=config)
    assert cloud.node().accelerator_type == "v5litepod-16"


@pytest.mark.parametrize("zone", ["mars-north1-a", "us-east1-d"])
def test_unknown_and_closed_zones_answer_alike(zone: str) -> None:
    """A zone that does not exist and one that is not open to the project give the same code, text and reason."""
    cloud = make_virtual_cloud(closed_zones=frozenset({"us-east1-d"}))
    parent = f"projects/local-project/locations/{zone}"
    error = refusal(cloud, "Tpu/CreateNode", create_request(spot_node(), parent=parent))
    assert (error.code, error.details[0].reason) == (7, "LOCATION_POLICY_VIOLATED")
    assert error.message == f"Permission denied on 'locations/{zone}' (or it may not exist)."


def test_a_strange_project_is_refused(cloud: VirtualCloud) -> None:
    """Only the configured project exists, by its id or its number."""
    node = cloud.create()
    by_number = tpu_v2.ListNodesRequest(parent="projects/100000000001/locations/-")
    assert [one.name for one in cloud.call("Tpu/ListNodes", by_number).nodes] == [f"{PARENT}/nodes/node-1"]
    strange = tpu_v2.ListNodesRequest(parent="projects/other/locations/-")
    assert (refusal(cloud, "Tpu/ListNodes", strange).code, node.done) == (7, False)


def test_lists_come_in_pages(cloud: VirtualCloud) -> None:
    """Pages of a listing hold each node once, in order, over all zones."""
    for index in range(5):
        cloud.create(f"node-{index}")
    parent, token, seen = "projects/local-project/locations/-", "", []
    for _ in range(3):
        answer = cloud.call("Tpu/ListNodes", tpu_v2.ListNodesRequest(parent=parent, page_size=2, page_token=token))
        seen.append([node.name.rpartition("/")[2] for node in answer.nodes])
        token = answer.next_page_token
    assert (seen, token) == ([["node-0", "node-1"], ["node-2", "node-3"], ["node-4"]], "")


def test_silent_zones_are_named(cloud: VirtualCloud) -> None:
    """A zone that does not answer is listed as unreachable and its nodes are missing, once per fault."""
    cloud.create()
    cloud.faults.add(fault("tpu.zone", {"zone": "europe-west4-b"}, action="unreachable"))
    request = tpu_v2.ListNodesRequest(parent="projects/local-project/locations/-")
    silent, answering = cloud.call("Tpu/ListNodes", request), cloud.call("Tpu/ListNodes", request)
    assert (list(silent.nodes), list(silent.unreachable)) == ([], ["europe-west4-b"])
    assert ([node.name for node in answering.nodes], list(answering.unreachable)) == ([f"{PARENT}/nodes/node-1"], [])


def test_creates_per_minute_are_limited() -> None:
    """The create-rate limit refuses with its text and a delay of 60 s, and forgets after a minute."""
    cloud = make_virtual_cloud(creates_per_minute=2)
    cloud.create("node-1")
    cloud.create("node-2")
    error = refusal(cloud, "Tpu/CreateNode", create_request(spot_node(), "node-3"))
    assert (error.code, error.details[0].retry_delay.seconds) == (8, 60)
    assert "Maximum number of CreateNode requests per minute" in error.message
    cloud.pass_time(61)
    assert not cloud.create("node-3").done
