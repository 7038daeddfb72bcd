# SPDX-License-Identifier: Apache-2.0
"""The TPU API over plain HTTP, and a VM that shuts itself down: what a TPU needs to leave without Airflow."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuRestTransport

from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud, eventually, tpu_client
from localcloud.virtual_cloud import PARENT, queued_resource, spot_node


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCloud]:
    """A local cloud with the quickest VMs."""
    directory: Path = tmp_path_factory.mktemp("cloud")
    with BackgroundCloud(LocalCloudConfig(directory, tier="inprocess")) as running:
        yield running


@pytest.fixture
def cloud(running: BackgroundCloud) -> Iterator[BackgroundCloud]:
    """The same, left without faults, nodes and queued resources."""
    yield running
    running.cloud.faults.clear()
    running.call(running.cloud.state.clear)
    eventually(running.snapshot, lambda found: not found["nodes"])


def ready_node(cloud: BackgroundCloud, node_id: str) -> str:
    """Create a node of its own; return its full name."""
    request = tpu_v2.CreateNodeRequest(parent=PARENT, node_id=node_id, node=spot_node())
    tpu_client(cloud.endpoints).create_node(request, timeout=60)
    eventually(lambda: states(cloud).get(node_id), lambda state: state == "READY")
    return f"{PARENT}/nodes/{node_id}"


def active_request(cloud: BackgroundCloud, name: str) -> str:
    """Create a queued resource with one node; return its full name."""
    request = tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT, queued_resource_id=name, queued_resource=queued_resource(name)
    )
    tpu_client(cloud.endpoints).create_queued_resource(request, timeout=60)
    eventually(lambda: states(cloud, "queued_resources").get(name), lambda state: state == "ACTIVE")
    return f"{PARENT}/queuedResources/{name}"


def states(cloud: BackgroundCloud, kind: str = "nodes") -> dict[str, str]:
    """State of every node (or queued resource) by its id."""
    return {row["name"].rpartition("/")[2]: row["state"] for row in cloud.snapshot()[kind]}


def ask(cloud: BackgroundCloud, method: str, path: str) -> tuple[int, Any]:
    """Make a request; return status and document of the answer."""
    request = urllib.request.Request(f"{cloud.endpoints.tpu_rest_endpoint}/v2/{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def bill(cloud: BackgroundCloud, name: str) -> dict[str, Any]:
    """What the meter has of the last life of a node."""
    rows: list[dict[str, Any]] = [row for row in cloud.meter()["nodes"] if row["name"] == name]
    return rows[-1]


def calls(cloud: BackgroundCloud, method: str) -> list[dict[str, Any]]:
    """What the audit has of one method."""
    audit = cloud.call(lambda: cloud.cloud.dump(calls=True))["audit"]
    return [call for call in audit if call["method"] == method]


def test_googles_rest_client_reads_and_deletes_a_node(cloud: BackgroundCloud) -> None:
    """The client of the real service, over HTTP, sees the node, deletes it and waits for the operation's end."""
    name = ready_node(cloud, "by-client")
    transport = TpuRestTransport(
        host=cloud.endpoints.tpu_rest_endpoint, url_scheme="http", credentials=AnonymousCredentials()
    )
    client = tpu_v2.TpuClient(transport=transport)
    assert client.get_node(name=name, timeout=60).state == tpu_v2.Node.State.READY
    client.delete_node(name=name, timeout=60).result(timeout=90)
    assert "by-client" not in states(cloud)


def test_node_is_deleted_once(cloud: BackgroundCloud) -> None:
    """The answer is an operation; the second call finds the same one or nothing, and the audit has the first."""
    name = ready_node(cloud, "once")
    status, operation = ask(cloud, "DELETE", name)
    assert (status, operation["metadata"]["target"], operation["metadata"]["verb"]) == (200, name, "delete")
    eventually(lambda: ask(cloud, "GET", operation["name"])[1].get("done", False), bool)
    status, refusal = ask(cloud, "DELETE", name)
    assert (status, refusal["error"]["status"]) == (404, "NOT_FOUND")
    assert [call["code"] for call in calls(cloud, "Tpu/DeleteNode") if call["resource"] == name] == [0, 5]
    assert bill(cloud, name)["ready"][-1]["end"] is not None


def test_queued_resource_goes_with_its_node_by_force(cloud: BackgroundCloud) -> None:
    """Without force an active request is refused; with it the node goes first, then the request."""
    name = active_request(cloud, "asked")
    assert ask(cloud, "GET", name)[1]["state"]["state"] == "ACTIVE"
    status, refusal = ask(cloud, "DELETE", name)
    assert (status, refusal["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert ask(cloud, "DELETE", f"{name}?force=true")[0] == 200
    eventually(lambda: (states(cloud), states(cloud, "queued_resources")), lambda found: found == ({}, {}))


def test_account_that_may_not(cloud: BackgroundCloud) -> None:
    """A fault of the REST transport refuses the VM and leaves the gRPC call of Airflow alone."""
    name = ready_node(cloud, "kept")
    cloud.add_fault("tpu.call", {"method": "DeleteNode", "transport": "rest", "name": name}, code=7)
    status, refusal = ask(cloud, "DELETE", name)
    assert (status, refusal["error"]["code"], refusal["error"]["status"]) == (403, 403, "PERMISSION_DENIED")
    assert states(cloud)["kept"] == "READY"
    cloud.add_fault("tpu.call", {"method": "DeleteNode", "transport": "rest", "name": name}, code=7)
    tpu_client(cloud.endpoints).delete_node(name=name, timeout=60)
    assert cloud.cloud.faults.unused() == ["fault-2"]


@pytest.mark.parametrize("path", ["projects/p/locations/z/disks/d", "nodes", f"{PARENT}/nodes"])
def test_call_that_is_not_served(cloud: BackgroundCloud, path: str) -> None:
    """What this part of the API does not have is named as such, not answered by something else."""
    status, refusal = ask(cloud, "DELETE", path)
    assert (status, refusal["error"]["status"]) == (501, "UNIMPLEMENTED")


def shut_down(cloud: BackgroundCloud, node: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with what a session on the node's VM finds."""
    environment = {**crew_environment(cloud), "LOCALCLOUD_NODE": node}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def crew_environment(cloud: BackgroundCloud) -> dict[str, str]:
    """PATH of the sessions on the VMs."""
    return {"PATH": f"{cloud.cloud.config.state_dir}/vm-bin:/usr/bin:/bin"}


@pytest.mark.parametrize("command", [("shutdown", "-h", "now"), ("sudo", "-n", "shutdown", "-h", "now")])
def test_node_whose_vm_is_switched_off_costs_nothing_more(cloud: BackgroundCloud, command: tuple[str, ...]) -> None:
    """It is STOPPED, its processes are gone and its meter stands; its name stays taken until it is deleted."""
    name = ready_node(cloud, "off")
    done = shut_down(cloud, name, *command)
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: states(cloud)["off"], lambda state: state == "STOPPED")
    assert cloud.cloud.worker_pool.processes() == []
    assert bill(cloud, name)["ready"][-1]["end"] is not None
    done = shut_down(cloud, name, *command)
    assert done.returncode == 1
    assert "is not running" in done.stderr


def test_queued_resource_whose_vm_is_switched_off_is_suspended(cloud: BackgroundCloud) -> None:
    """A node of a queued resource cannot be stopped: it is lost to the request."""
    active_request(cloud, "halted")
    node = next(row["name"] for row in cloud.snapshot()["nodes"])
    assert shut_down(cloud, node, "shutdown", "-h", "now").returncode == 0
    eventually(lambda: states(cloud, "queued_resources")["halted"], lambda state: state == "SUSPENDED")
