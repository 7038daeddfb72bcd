# SPDX-License-Identifier: Apache-2.0
"""Every verb of the Cloud TPU API, through Google's own client."""

from __future__ import annotations

import datetime as dt

import pytest
from google.cloud import tpu_v2

from airflow_tpu.clients.tpu_api import TPUClient, offered
from airflow_tpu.clients.tpu_messages import Stamp
from airflow_tpu.core.grant.assignment import assign
from airflow_tpu.core.tpu.labels import labels
from airflow_tpu.core.tpu.resource_name import ResourceName, node_name
from airflow_tpu.core.tpu.spec import Phase, QueuedView, Tier
from airflow_tpu.errors import GrantViolation, ResourceNotFound
from airflow_tpu.hooks.tpu import CloudTPUAsyncHook, CloudTPUHook
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from localcloud.rules.settings import Latencies
from localcloud.testing import eventually_async
from localcloud.tpu_state.nodes.requests import build
from tests.airflow_tpu.cloud_env import KEY, PARENT, ZONE, CloudEnv, now, request_delete
from tests.airflow_tpu.conftest import Open

NODE = ResourceName.parse(f"{PARENT}/nodes/n-1")
QUEUED = ResourceName.parse(f"{PARENT}/queuedResources/n-1")


async def ready(client: TPUClient) -> None:
    """Wait until the node is READY."""
    await eventually_async(lambda: _phase(client), lambda phase: phase is Phase.USABLE)


async def _phase(client: TPUClient) -> Phase | None:
    try:
        return (await client.node(NODE)).phase
    except ResourceNotFound:
        return None


async def test_node_is_created_as_asked(env: CloudEnv, client: TPUClient) -> None:
    """The node carries type, tier, labels and key; its operation ends when it is READY."""
    before = now()
    operation = await env.create(client)
    await ready(client)
    view = await client.node(NODE)
    assert (view.node_id, view.zone, view.accelerator_type, view.tier) == ("n-1", ZONE, "v2-8", Tier.SPOT)
    assert view.labels == labels(KEY, env.runs.read(KEY).stamp)
    assert view.created_at is not None
    assert view.created_at >= before - dt.timedelta(seconds=1)
    ended = await client.operation(operation)
    assert (ended.done, ended.error) == (True, None)
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert ended.started_at <= ended.ended_at


async def test_key_travels_in_the_create_request_only(env: CloudEnv, client: TPUClient) -> None:
    """The public key is in the metadata from the start, OS Login is off, and nothing else is there."""
    await env.create(client)
    metadata = dict(env.cloud.call(lambda: env.cloud.cloud.state.node("n-1")).template.metadata)
    assert metadata == {"ssh-keys": env.order().ssh_keys, "enable-oslogin": "FALSE"}


async def test_queued_resource_is_created_as_asked(env: CloudEnv, client: TPUClient) -> None:
    """A queued resource and its node carry one id, the labels and the tier."""
    await env.create(client, queued=True)
    await ready(client)
    queued, node = await client.queued_resource(QUEUED), await client.node(NODE)
    assert (queued.queued_id, queued.node_ids, queued.tier) == ("n-1", ("n-1",), Tier.SPOT)
    assert queued.labels == node.labels
    assert node.queued_resource == QUEUED


@pytest.mark.parametrize(("prefix", "first"), [("slice", "slice-0"), ("", "q-0")])
@pytest.mark.parametrize("exists", [False, True])
async def test_multislice_counts_all_its_nodes(
    env: CloudEnv, client: TPUClient, prefix: str, first: str, exists: bool
) -> None:
    """A multislice of another user takes as many devices of the grant as it has nodes, before and after they exist."""
    if not exists:
        env.cloud.add_fault("queued.timeline", {"queued": "q"}, wait="forever")
    env.foreign_multislice({"node_count": 5, "node_id_prefix": prefix})
    if exists:
        await eventually_async(lambda: client.queued_resource(node_name("local-project", ZONE, "q").queued), _is_active)
    with pytest.raises(GrantViolation) as caught:
        env.order(tier=Tier.ON_DEMAND).permit(await take_snapshot(client), env.lease(), now())
    holder = first if exists else f"q/{first}"
    held = f"5 held are more than 5 on-demand v2-8 devices in {ZONE}; held by {holder} (v2-8)"
    assert held in str(caught.value)


async def test_request_by_topology_counts_its_chips(env: CloudEnv, client: TPUClient) -> None:
    """A request of another user that names generation and topology instead of a type takes its chips of the grant."""
    config = {"type_": "V5LITE_POD", "topology": "4x8"}
    place = PARENT.replace(ZONE, "us-central1-a")
    node = {"accelerator_config": config, "runtime_version": "v2-alpha-tpuv5-lite"}
    queued = {"tpu": {"node_spec": [{"parent": place, "node_id": "n", "node": node}]}, "spot": {}}
    request = tpu_v2.CreateQueuedResourceRequest(parent=place, queued_resource_id="q", queued_resource=queued)
    env.cloud.call(lambda: env.cloud.cloud.service.methods["Tpu/CreateQueuedResource"](request))
    found = assign(env.grant, (await take_snapshot(client)).inventory().items)
    assert [use.in_use for use in found.uses if str(use.row) == "64 spot v5e chips in us-central1-a"] == [32]
    assert (found.uncounted, found.uncovered) == ((), ())


async def test_multislice_is_deleted_with_all_its_nodes(env: CloudEnv, client: TPUClient) -> None:
    """A multislice that carries a run's labels goes by one delete of its request, which takes every node along."""
    env.foreign_multislice({"node_count": 2}, labels(KEY, env.lease().stamp))
    request = node_name("local-project", ZONE, "q").queued
    await eventually_async(lambda: client.queued_resource(request), _is_active)
    await request_delete(client, KEY)
    await eventually_async(lambda: take_snapshot(client), lambda snapshot: not snapshot.names)
    assert (len(env.calls("DeleteQueuedResource")), len(env.calls("DeleteNode"))) == (1, 0)


def _is_active(request: QueuedView) -> bool:
    return request.phase is Phase.USABLE


async def test_permit_fits_one_spec_only(env: CloudEnv, client: TPUClient) -> None:
    """A permit for one zone creates nothing in another."""
    order = env.order()
    permit = order.permit(await take_snapshot(client), env.lease(), now())
    other = env.order(zone="us-central1-b").spec
    with pytest.raises(GrantViolation):
        await client.create(other, Stamp("n-1", {}, "", ""), permit)
    assert env.calls("CreateNode") == []


async def test_lists_see_everything_in_every_zone(env: CloudEnv, client: TPUClient) -> None:
    """Nodes and queued resources are listed for all zones at once or for one."""
    await env.create(client, queued=True)
    await ready(client)
    assert [node.name for node in (await client.nodes()).items] == [NODE]
    assert [queued.name for queued in (await client.queued_resources(ZONE)).items] == [QUEUED]
    assert (await client.nodes("us-east1-d")).items == ()


async def test_delete_node(env: CloudEnv, client: TPUClient) -> None:
    """A delete is an operation that can be polled; of what is gone there is none."""
    await env.create(client)
    await ready(client)
    operation = await client.delete_node(NODE)
    assert operation is not None
    await eventually_async(lambda: client.operation(operation.name), lambda found: found.done)
    assert await client.delete_node(NODE) is None
    assert env.nodes() == {}


async def test_delete_queued_resource_takes_its_node_along(env: CloudEnv, client: TPUClient) -> None:
    """An ACTIVE queued resource is deleted by force, together with its node."""
    await env.create(client, queued=True)
    await ready(client)
    operation = await client.delete_queued_resource(QUEUED)
    assert operation is not None
    await eventually_async(lambda: client.operation(operation.name), lambda found: found.done)
    assert await client.delete_queued_resource(QUEUED) is None
    assert (env.nodes(), env.queued()) == ({}, {})


async def test_relabel_replaces_the_labels(env: CloudEnv, client: TPUClient) -> None:
    """The adopting attempt's labels replace the older ones, and nothing else changes."""
    await env.create(client)
    await ready(client)
    before = await client.node(NODE)
    await client.relabel(NODE, {**before.labels, "airflow-tpu-token": "newer"})
    after = await client.node(NODE)
    assert after.labels == {**before.labels, "airflow-tpu-token": "newer"}
    assert after.endpoints == before.endpoints


async def test_host_keys_are_read_per_worker(env: CloudEnv, client: TPUClient) -> None:
    """Each worker's published key is the one its sshd shows."""
    await env.create(client)
    await ready(client)
    node_workers = env.cloud.call(lambda: env.cloud.cloud.worker_pool.workers_of(str(NODE)))
    assert node_workers is not None
    shown = {index: " ".join(worker.host_key.split()[:2]) for index, worker in enumerate(node_workers.workers)}
    assert await client.host_keys(NODE) == shown


async def test_no_host_key_before_the_boot(open_env: Open) -> None:
    """A worker that has not booted publishes no key, which is an answer and not an error."""
    env = open_env(latencies=Latencies(creating=600.0))
    async with env.client() as client:
        await env.create(client)
        assert await client.host_keys(NODE) == {}


async def test_offers_of_a_zone(client: TPUClient) -> None:
    """Types and runtime versions of a zone are listed, all pages."""
    types, versions = await offered(client, ZONE)
    assert "v2-8" in types
    assert "v5litepod-8" not in types
    assert versions


async def test_listing_follows_every_page(env: CloudEnv, client: TPUClient) -> None:
    """A project with more nodes than one page holds is listed whole: the leaked one may be on the last page."""

    def fill() -> None:
        nodes = env.cloud.cloud.state.nodes
        zone = nodes.backend.locate("projects/local-project/locations/europe-west4-b")
        asked = tpu_v2.Node(accelerator_type="v5litepod-1", runtime_version="v2-alpha-tpuv5-lite")
        for number in range(1001):
            nodes.add(build(nodes.backend, zone, f"n-{number:04}", asked))

    env.cloud.call(fill)
    found = await client.nodes()
    assert len({node.name for node in found.items}) == 1001
    assert len(env.calls("ListNodes")) == 2


async def test_silent_zone_is_named(env: CloudEnv, client: TPUClient) -> None:
    """A zone that does not answer stands beside the items: the list does not look complete."""
    env.cloud.add_fault("tpu.zone", {"zone": "us-east1-d"}, times=10, action="unreachable")
    found = await client.nodes()
    assert "us-east1-d" in found.unreachable
    assert (await client.nodes("us-east1-d")).unreachable


async def test_client_outside_of_its_context_is_a_bug(env: CloudEnv) -> None:
    """A client that was not entered says so instead of failing somewhere inside gRPC."""
    with pytest.raises(RuntimeError, match="async with"):
        await env.client().nodes()


async def test_hook_leads_where_its_connection_says(env: CloudEnv) -> None:
    """The asynchronous hook reaches the connection's endpoint and reads its SSH port."""
    hook = CloudTPUAsyncHook()
    async with await hook.client() as client:
        assert (await client.nodes()).items == ()
    assert (await hook.options()).ssh_port == env.cloud.endpoints.ssh_port


def test_hook_has_the_verbs_for_a_worker(env: CloudEnv) -> None:
    """Without an event loop every verb works by itself."""
    hook = CloudTPUHook()
    assert hook.list_nodes().items == ()
    assert hook.list_queued_resources().items == ()
    assert hook.delete_node(str(NODE)) is None
    assert hook.delete_queued_resource(str(QUEUED)) is None
    with pytest.raises(ResourceNotFound, match="n-1"):
        hook.get_node(str(NODE))
    with pytest.raises(ResourceNotFound):
        hook.get_operation(f"{PARENT}/operations/operation-1-1")
