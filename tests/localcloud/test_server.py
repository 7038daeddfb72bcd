# SPDX-License-Identifier: Apache-2.0
"""The whole local cloud: real SSH servers, real storage, Google's own client, and nothing left at the end."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import grpc
import psutil
import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport
from google.cloud.tpu_v2.types import Node
from google.protobuf import field_mask_pb2

from localcloud.server import LocalCloud, LocalCloudConfig
from localcloud.testing import eventually_async
from localcloud.virtual_cloud import PARENT, spot_node
from localcloud.vm.processes import living

NAME = f"{PARENT}/nodes/node-1"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[LocalCloud]:
    """A local cloud with the strongest isolation of this machine and one bucket."""
    async with LocalCloud(LocalCloudConfig(tmp_path / "state", buckets={"trc-test": "EUROPE-WEST4"})) as running:
        yield running


@pytest.fixture
async def client(cloud: LocalCloud) -> AsyncIterator[tpu_v2.TpuAsyncClient]:
    """Google's asynchronous client."""
    async with grpc.aio.insecure_channel(cloud.endpoints.tpu_api_endpoint) as channel:
        yield tpu_v2.TpuAsyncClient(transport=TpuGrpcAsyncIOTransport(channel=channel))


@pytest.fixture(scope="module")
def key() -> asyncssh.SSHKey:
    """The user's key pair."""
    return asyncssh.generate_private_key("ssh-ed25519")


def authorized(key: asyncssh.SSHKey, user: str = "trainer") -> dict[str, str]:
    """Return node metadata that lets a key in."""
    return {"ssh-keys": f"{user}:{key.export_public_key().decode().strip()}"}


async def ready(client: tpu_v2.TpuAsyncClient, **changes: Any) -> Node:
    """Create a node and return it when it is READY."""
    await client.create_node(parent=PARENT, node_id="node-1", node=spot_node(**changes))
    return await eventually_async(lambda: client.get_node(name=NAME), lambda node: node.state == Node.State.READY)


async def host_keys(client: tpu_v2.TpuAsyncClient) -> list[bytes]:
    """Return the published host keys by worker, as lines of a known-hosts file."""
    request = tpu_v2.GetGuestAttributesRequest(name=NAME, query_path="hostkeys/")
    answer = await client.get_guest_attributes(request)
    items = [one.query_value.items[0] for one in answer.guest_attributes]
    return [f"{item.key} {item.value}".encode() for item in items]


def connect(cloud: LocalCloud, node: Node, pinned: bytes, key: asyncssh.SSHKey, worker: int = 0) -> Any:
    """Return a connection to a worker that trusts one host key only."""
    return asyncssh.connect(
        node.network_endpoints[worker].ip_address,
        cloud.endpoints.ssh_port,
        username="trainer",
        client_keys=[key],
        known_hosts=([asyncssh.import_public_key(pinned)], [], []),
        config=None,
        agent_path=None,
    )


async def test_a_node_from_create_to_delete(
    cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey
) -> None:
    """A command runs over SSH with the published host key; preemption kills every process; the meter is right."""
    node = await ready(client, metadata=authorized(key))
    pinned = (await host_keys(client))[0]
    async with connect(cloud, node, pinned, key) as connection:
        script = "setsid nohup sleep 600 >/dev/null 2>&1 & id -un; echo $STORAGE_EMULATOR_HOST; command -v python3"
        answer = await connection.run(script, check=True)
        user, storage, interpreter = str(answer.stdout).split()
        processes = living.known(cloud.worker_pool.processes())
    assert (user, storage) == ("trainer", cloud.endpoints.storage_api_endpoint)
    assert interpreter.endswith("/bin/python3")
    assert any("sleep 600" in living.command_of(process) for process in processes)

    cloud.state.shutdown.preempt(cloud.state.node("node-1"))
    billed = cloud.meter.ready_seconds("node-1")
    await eventually_async(lambda: _alive(processes), lambda left: left == [])
    assert (await client.get_node(name=NAME)).state == Node.State.PREEMPTED
    with pytest.raises(OSError, match=r"Connect call failed|Connection refused"):
        await connect(cloud, node, pinned, key)

    await client.delete_node(name=NAME)
    await eventually_async(lambda: _snapshot(cloud), lambda shown: shown["nodes"] == [])
    row = cloud.meter.dump()["nodes"][0]
    assert (row["gone"], row["ready_seconds"]) == (True, pytest.approx(billed, abs=1e-9))
    assert row["chip_hours"] == pytest.approx(billed * 8 / 3600)


async def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return living.still_alive(processes)


async def _snapshot(cloud: LocalCloud) -> dict[str, Any]:
    return cloud.state.snapshot()


async def test_every_worker_of_a_slice_answers(
    cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey
) -> None:
    """Four workers have four addresses, host keys and homes; a foreign host key is refused."""
    node = await ready(client, accelerator_type="v5litepod-16", metadata=authorized(key))
    pinned = await host_keys(client)

    async def home(worker: int) -> str:
        async with connect(cloud, node, pinned[worker], key, worker) as connection:
            return str((await connection.run("pwd", check=True)).stdout).strip()

    homes = await asyncio.gather(*(home(worker) for worker in range(4)))
    assert (len(set(homes)), len(set(pinned))) == (4, 4)
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await connect(cloud, node, pinned[1], key, worker=0)


async def test_metadata_updates_reach_the_vms(
    cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey
) -> None:
    """A key that UpdateNode adds to the metadata may log in, which before it could not."""
    node = await ready(client)
    pinned = (await host_keys(client))[0]
    with pytest.raises(asyncssh.PermissionDenied):
        await connect(cloud, node, pinned, key)
    changed = Node(name=NAME, metadata=authorized(key))
    await (await client.update_node(node=changed, update_mask=field_mask_pb2.FieldMask(paths=["metadata"]))).result(
        timeout=240
    )
    async with connect(cloud, node, pinned, key) as connection:
        assert str((await connection.run("echo in", check=True)).stdout) == "in\n"


async def test_ssh_may_be_refused_at_first(
    cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey
) -> None:
    """With ``refuse_seconds`` a READY node refuses connections."""
    cloud.faults.add({"point": "vm.ssh", "match": {"node": "node-1"}, "params": {"refuse_seconds": 3600}})
    node = await ready(client, metadata=authorized(key))
    pinned = (await host_keys(client))[0]
    with pytest.raises(OSError, match=r"Connect call failed|Connection refused"):
        await connect(cloud, node, pinned, key)


async def test_the_key_may_be_late(cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey) -> None:
    """With ``key_late_seconds`` a READY node denies the login."""
    cloud.faults.add({"point": "vm.ssh", "params": {"key_late_seconds": 3600}})
    node = await ready(client, metadata=authorized(key))
    pinned = (await host_keys(client))[0]
    with pytest.raises(asyncssh.PermissionDenied):
        await connect(cloud, node, pinned, key)


async def test_the_host_key_may_change(cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey) -> None:
    """With ``rotate_host_key`` the VM shows another key than the API tells."""
    cloud.faults.add({"point": "vm.ssh", "params": {"rotate_host_key": True}})
    node = await ready(client, metadata=authorized(key))
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await connect(cloud, node, (await host_keys(client))[0], key)


async def test_a_connection_may_be_cut_while_the_process_lives(
    cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey
) -> None:
    """The control port's ``drop`` cuts the connection; a detached process lives on, and a new connection works."""
    node = await ready(client, metadata=authorized(key))
    pinned = (await host_keys(client))[0]
    async with connect(cloud, node, pinned, key) as connection:
        await connection.run("setsid nohup sleep 600 >/dev/null 2>&1 </dev/null & echo on", check=True)
        answer = await post(cloud, "/nodes/drop", {"node": "node-1"})
        await connection.wait_closed()
    assert answer == {"node": NAME, "state": "READY"}
    async with connect(cloud, node, pinned, key) as connection:
        alive = await connection.run("pgrep -f 'sleep 600' >/dev/null && echo alive", check=True)
    assert str(alive.stdout) == "alive\n"


async def test_preemption_at_a_step_follows_the_training(
    cloud: LocalCloud, client: tpu_v2.TpuAsyncClient, key: asyncssh.SSHKey
) -> None:
    """A node is preempted once the progress file on its VM shows the step, not before."""
    cloud.faults.add({"point": "node.timeline", "params": {"preempt_at_step": 7}})
    node = await ready(client, metadata=authorized(key))
    async with connect(cloud, node, (await host_keys(client))[0], key) as connection:
        await connection.run("mkdir -p run/output && echo '{\"step\": 6}' > run/output/progress.json", check=True)
        before = (await client.get_node(name=NAME)).state
        await connection.run("echo '{\"step\": 7}' > run/output/progress.json")
    after = await eventually_async(lambda: client.get_node(name=NAME), lambda now: now.state == Node.State.PREEMPTED)
    assert (before, after.state) == (Node.State.READY, Node.State.PREEMPTED)
    assert cloud.faults.unused() == []


async def test_the_control_port_tells_and_refuses_in_words(cloud: LocalCloud, client: tpu_v2.TpuAsyncClient) -> None:
    """Status, meter and faults are JSON; what cannot be done gets a text."""
    await ready(client)
    await post(cloud, "/faults", {"id": "one", "point": "tpu.call", "match": {"method": "StopNode"}})
    status, meter, faults = [await fetch(cloud, path) for path in ("/status", "/meter", "/faults")]
    assert ([node["state"] for node in status["nodes"]], status["unused_faults"]) == (["READY"], ["one"])
    assert (list(meter["storage"]["buckets"]), meter["calls"]["Tpu/CreateNode"]) == (["trc-test"], 1)
    assert faults["unused"] == ["one"]
    assert "unknown point 'nowhere'" in str(await post(cloud, "/faults", {"point": "nowhere"}))
    assert "was not found" in str(await post(cloud, "/nodes/preempt", {"node": "nobody"}))
    assert "known: preempt" in str(await post(cloud, "/nodes/explode", {"node": "node-1"}))
    assert "lacks 'node'" in str(await post(cloud, "/nodes/preempt", {}))
    await post(cloud, "/reset", {})
    await eventually_async(lambda: fetch(cloud, "/status"), lambda now: now["nodes"] == [])
    assert (await fetch(cloud, "/faults"))["faults"] == []


async def post(cloud: LocalCloud, path: str, body: Any) -> Any:
    """Send JSON to the control port and return its JSON, or the text of its refusal."""
    return await asyncio.to_thread(_http, cloud.endpoints.control_endpoint + path, json.dumps(body).encode())


async def fetch(cloud: LocalCloud, path: str) -> Any:
    """Return JSON from the control port."""
    return await asyncio.to_thread(_http, cloud.endpoints.control_endpoint + path, None)


def _http(url: str, data: bytes | None) -> Any:
    try:
        with urllib.request.urlopen(url, data) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.read().decode()
