# SPDX-License-Identifier: Apache-2.0
"""The log of creates and deletes, as Cloud Audit Logs have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tpu_v2

from localcloud.cli.main import main
from localcloud.rules.errors import CloudError
from localcloud.tpu_api.audit import FILE, ActivityLog, entries
from localcloud.tpu_api.dispatcher import CallDispatcher
from localcloud.virtual_cloud import PARENT, VirtualCloud, fault, make_virtual_cloud, queued_resource, spot_node

NAME = f"{PARENT}/nodes/node-1"
CREATE = tpu_v2.CreateNodeRequest(parent=PARENT, node_id="node-1", node=spot_node())
DELETE = tpu_v2.DeleteNodeRequest(name=NAME)


@pytest.fixture
def cloud() -> VirtualCloud:
    """A cloud in virtual time."""
    return make_virtual_cloud()


@pytest.fixture
def dispatcher(cloud: VirtualCloud, tmp_path: Path) -> CallDispatcher:
    """Its dispatcher, with the log in a directory of this test."""
    return CallDispatcher(cloud.service, cloud.meter.calls, ActivityLog(tmp_path / FILE, "local-project", cloud.clock))


def logged(state_dir: Path) -> list[tuple[str, str, str, int]]:
    """Method, resource, mark and code of every entry."""
    found = []
    for entry in entries(state_dir):
        payload, operation = entry["protoPayload"], entry.get("operation", {})
        mark = "first" if operation.get("first") else "last" if operation.get("last") else ""
        name = payload["resourceName"].rpartition("/")[2]
        found.append((payload["methodName"], name, mark, payload.get("status", {}).get("code", 0)))
    return found


def method(verb: str) -> str:
    """The method's name in the log."""
    return f"google.cloud.tpu.v2.Tpu.{verb}"


async def test_each_operation_has_a_first_and_a_last_entry(
    dispatcher: CallDispatcher, cloud: VirtualCloud, tmp_path: Path
) -> None:
    """Create and delete of a node and of a queued resource; reads are not in this log."""
    await dispatcher.serve("Tpu/CreateNode", CREATE, "grpc")
    assert logged(tmp_path) == [(method("CreateNode"), "node-1", "first", 0)]
    cloud.pass_time(60)
    await dispatcher.serve("Tpu/GetNode", tpu_v2.GetNodeRequest(name=NAME), "grpc")
    await dispatcher.serve("Tpu/DeleteNode", DELETE, "rest")
    cloud.pass_time(60)
    request = tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT, queued_resource_id="request-1", queued_resource=queued_resource("node-2")
    )
    await dispatcher.serve("Tpu/CreateQueuedResource", request, "grpc")
    cloud.pass_time(60)
    assert logged(tmp_path) == [
        (method("CreateNode"), "node-1", "first", 0),
        (method("CreateNode"), "node-1", "last", 0),
        (method("DeleteNode"), "node-1", "first", 0),
        (method("DeleteNode"), "node-1", "last", 0),
        (method("CreateQueuedResource"), "request-1", "first", 0),
        (method("CreateQueuedResource"), "request-1", "last", 0),
    ]


async def test_a_refused_call_has_one_entry_with_its_status(dispatcher: CallDispatcher, tmp_path: Path) -> None:
    """What cannot be found cannot be deleted, and the log says who tried."""
    with pytest.raises(CloudError):
        await dispatcher.serve("Tpu/DeleteNode", DELETE, "grpc")
    assert logged(tmp_path) == [(method("DeleteNode"), "node-1", "", 5)]


async def test_an_operation_that_fails_says_so_in_its_last_entry(
    dispatcher: CallDispatcher, cloud: VirtualCloud, tmp_path: Path
) -> None:
    """No capacity: the call was accepted, its operation was not successful."""
    cloud.faults.add(fault("tpu.operation", {"verb": "create"}, code=8, message="no more capacity"))
    await dispatcher.serve("Tpu/CreateNode", CREATE, "grpc")
    cloud.pass_time(60)
    assert [entry[2:] for entry in logged(tmp_path)] == [("first", 0), ("last", 8)]


@pytest.mark.parametrize(("action", "count"), [("lose-response", 1), ("error", 0)])
async def test_what_took_effect_is_in_the_log(
    dispatcher: CallDispatcher, cloud: VirtualCloud, tmp_path: Path, action: str, count: int
) -> None:
    """An answer that was lost on the way changes nothing; a call that never arrived left nothing."""
    cloud.faults.add(fault("tpu.call", {"method": "CreateNode"}, action=action))
    with pytest.raises(CloudError):
        await dispatcher.serve("Tpu/CreateNode", CREATE, "grpc")
    assert len(logged(tmp_path)) == count


async def test_a_preemption_is_no_call(dispatcher: CallDispatcher, cloud: VirtualCloud, tmp_path: Path) -> None:
    """What Google does by itself is a system event, and not in this log."""
    await dispatcher.serve("Tpu/CreateNode", CREATE, "grpc")
    cloud.pass_time(60)
    cloud.state.shutdown.preempt(cloud.state.node("node-1"))
    cloud.pass_time(60)
    assert len(logged(tmp_path)) == 2


async def test_the_command_prints_what_gcloud_would(
    dispatcher: CallDispatcher, cloud: VirtualCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``audit`` needs no running cloud, and leaves out a line that is being written."""
    assert (main(["audit", "--state-dir", str(tmp_path)]), capsys.readouterr().out) == (0, "[]\n")
    await dispatcher.serve("Tpu/CreateNode", CREATE, "grpc")
    with (tmp_path / FILE).open("a", encoding="utf-8") as file:
        file.write('{"half": ')
    assert main(["audit", "--state-dir", str(tmp_path)]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    expected: dict[str, Any] = {"logName": "projects/local-project/logs/cloudaudit.googleapis.com%2Factivity"}
    assert {key: entry[key] for key in expected} == expected
    assert entry["timestamp"].endswith("Z")
    assert entry["protoPayload"]["resourceName"] == NAME
