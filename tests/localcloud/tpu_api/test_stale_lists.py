# SPDX-License-Identifier: Apache-2.0
"""Lists that are behind: what they leave out, what they still show, and that they catch up."""

from __future__ import annotations

import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.types import Node

from localcloud.rules.errors import CloudError
from localcloud.virtual_cloud import PARENT, VirtualCloud, fault, make_virtual_cloud

ANYWHERE = PARENT.rpartition("/")[0] + "/-"
ELSEWHERE = PARENT.rpartition("/")[0] + "/us-central1-f"
LAG = 60.0


@pytest.fixture
def cloud() -> VirtualCloud:
    """A virtual cloud with default settings."""
    return make_virtual_cloud()


def behind(cloud: VirtualCloud, event: str, collection: str = "nodes") -> None:
    """Let the lists miss the next create, or the next delete."""
    cloud.faults.add(fault("tpu.list", {"event": event, "name": f"*/{collection}/*"}, seconds=LAG))


def nodes(cloud: VirtualCloud, parent: str = PARENT) -> dict[str, int]:
    """State of each node by its id, as a list shows them."""
    answer = cloud.call("Tpu/ListNodes", tpu_v2.ListNodesRequest(parent=parent))
    return {node.name.rpartition("/")[2]: node.state for node in answer.nodes}


def requests(cloud: VirtualCloud) -> list[str]:
    """Ids of the queued resources, as a list shows them."""
    answer = cloud.call("Tpu/ListQueuedResources", tpu_v2.ListQueuedResourcesRequest(parent=ANYWHERE))
    return [item.name.rpartition("/")[2] for item in answer.queued_resources]


def test_a_new_node_is_missing_for_a_while(cloud: VirtualCloud) -> None:
    """No list shows it, Get does; when the time is over both do."""
    behind(cloud, "create")
    cloud.create("late")
    cloud.create("early")
    cloud.pass_time(LAG / 2)
    assert nodes(cloud) == nodes(cloud, ANYWHERE) == {"early": Node.State.READY}
    assert cloud.node("late").state == Node.State.READY
    cloud.pass_time(LAG)
    assert set(nodes(cloud)) == {"early", "late"}


def test_a_deleted_node_is_still_shown_as_it_was(cloud: VirtualCloud) -> None:
    """Lists of its zone say READY, Get says that there is none."""
    cloud.create("ghost")
    cloud.pass_time(LAG)
    behind(cloud, "delete")
    cloud.call("Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/ghost"))
    assert nodes(cloud) == {"ghost": Node.State.READY}
    cloud.pass_time(LAG / 2)
    assert nodes(cloud, ANYWHERE) == {"ghost": Node.State.READY}
    assert nodes(cloud, ELSEWHERE) == {}
    with pytest.raises(CloudError, match="not found"):
        cloud.node("ghost")
    cloud.pass_time(LAG)
    assert nodes(cloud) == {}


def test_a_name_that_is_used_again_is_no_ghost(cloud: VirtualCloud) -> None:
    """What is created under the name of something deleted is shown itself."""
    cloud.create("again")
    cloud.pass_time(1.0)
    behind(cloud, "delete")
    cloud.call("Tpu/DeleteNode", tpu_v2.DeleteNodeRequest(name=f"{PARENT}/nodes/again"))
    cloud.pass_time(1.0)
    cloud.create("again")
    assert nodes(cloud) == {"again": Node.State.CREATING}


def test_queued_resources_lag_as_well(cloud: VirtualCloud) -> None:
    """A request is missing after its create and still there after its delete, whatever its node does."""
    behind(cloud, "create", "queuedResources")
    cloud.enqueue("request-1")
    assert requests(cloud) == []
    cloud.pass_time(LAG)
    assert requests(cloud) == ["request-1"]
    behind(cloud, "delete", "queuedResources")
    name = f"{PARENT}/queuedResources/request-1"
    cloud.call("Tpu/DeleteQueuedResource", tpu_v2.DeleteQueuedResourceRequest(name=name, force=True))
    cloud.pass_time(LAG / 2)
    assert (requests(cloud), nodes(cloud)) == (["request-1"], {})
    cloud.pass_time(LAG)
    assert requests(cloud) == []
