# SPDX-License-Identifier: Apache-2.0
"""The TPU API through Google's own clients: answers, errors with their details, and what can go wrong with calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcAsyncIOTransport
from google.cloud.tpu_v2.types import Node
from google.longrunning import operations_pb2

from localcloud.rules.settings import Settings
from localcloud.server import LocalCloudConfig
from localcloud.testing import BackgroundCloud, eventually, eventually_async, tpu_client
from localcloud.tpu_api.grpc_table import method_table
from localcloud.tpu_state.call_log import LoggedCall
from localcloud.virtual_cloud import PARENT, queued_resource, spot_node

METRIC = "TPUV5sLitepodPerProjectPerZoneForTPUAPI"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCloud]:
    """A local cloud with the quickest VMs: these tests look at the API, not at the machines."""
    settings = Settings(quota={f"{METRIC}@europe-west4-b": 8})
    directory: Path = tmp_path_factory.mktemp("cloud")
    with BackgroundCloud(LocalCloudConfig(directory, settings, tier="inprocess")) as running:
        yield running


@pytest.fixture(scope="module")
def client(cloud: BackgroundCloud) -> tpu_v2.TpuClient:
    """Google's synchronous client."""
    return tpu_client(cloud.endpoints)


@pytest.fixture
async def async_client(cloud: BackgroundCloud) -> AsyncIterator[tpu_v2.TpuAsyncClient]:
    """Google's asynchronous client."""
    async with grpc.aio.insecure_channel(cloud.endpoints.tpu_api_endpoint) as channel:
        yield tpu_v2.TpuAsyncClient(transport=TpuGrpcAsyncIOTransport(channel=channel))


def create(client: tpu_v2.TpuClient, node_id: str, **changes: Any) -> Any:
    """Ask for a spot node and return the operation."""
    request = tpu_v2.CreateNodeRequest(parent=PARENT, node_id=node_id, node=spot_node(**changes))
    return client.create_node(request, timeout=240)


def name(node_id: str) -> str:
    """Return the full name of a node."""
    return f"{PARENT}/nodes/{node_id}"


def state(client: tpu_v2.TpuClient, node_id: str) -> int:
    """Return the state of a node as the API shows it."""
    return int(client.get_node(name=name(node_id), timeout=240).state)


def test_the_table_holds_every_method_of_the_client() -> None:
    """All 18 TPU methods, five of Operations and two of Locations are found in the client package."""
    services = [row.key.partition("/")[0] for row in method_table().values()]
    assert {service: services.count(service) for service in services} == {"Tpu": 18, "Operations": 5, "Locations": 2}


def test_a_node_lives_and_goes_through_the_clients_own_waiting(client: tpu_v2.TpuClient) -> None:
    """Create and delete finish through the client's own operation objects, with typed results."""
    created = create(client, "simple", labels={"run": "abc"}).result(timeout=240)
    assert (created.state, created.name, dict(created.labels)) == (Node.State.READY, name("simple"), {"run": "abc"})
    client.delete_node(name=name("simple")).result(timeout=240)
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=name("simple"))


async def test_a_queued_resource_through_the_async_client(async_client: tpu_v2.TpuAsyncClient) -> None:
    """A queued resource becomes ACTIVE, refuses a plain delete, and is gone after a forced one."""
    resource = f"{PARENT}/queuedResources/async"
    await async_client.create_queued_resource(
        parent=PARENT, queued_resource_id="async", queued_resource=queued_resource("async-node")
    )
    await eventually_async(
        lambda: async_client.get_queued_resource(name=resource), lambda shown: shown.state.state.name == "ACTIVE"
    )
    with pytest.raises(exceptions.FailedPrecondition):
        await async_client.delete_queued_resource(name=resource)
    request = tpu_v2.DeleteQueuedResourceRequest(name=resource, force=True)
    await (await async_client.delete_queued_resource(request)).result(timeout=240)
    with pytest.raises(exceptions.NotFound):
        await async_client.get_queued_resource(name=resource)


def test_offers_come_from_the_catalogue(client: tpu_v2.TpuClient) -> None:
    """Types, runtime versions and locations of a zone are listed, found by name, and missing elsewhere."""
    types = [one.type_ for one in client.list_accelerator_types(parent=PARENT)]
    versions = [one.version for one in client.list_runtime_versions(parent=PARENT)]
    locations = client.list_locations(locations_pb2.ListLocationsRequest(name="projects/local-project")).locations
    assert "v5litepod-8" in types
    assert "v4-8" not in types
    assert "v2-alpha-tpuv5-lite" in versions
    assert "europe-west4-b" in [one.location_id for one in locations]
    assert client.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v5litepod-8").type_ == "v5litepod-8"
    with pytest.raises(exceptions.NotFound):
        client.get_runtime_version(name=f"{PARENT}/runtimeVersions/tpu-vm-tf-0.0.0")


def test_operations_are_listed_waited_for_and_forgotten(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """An operation outlives its node, is listed in its location, can be waited for, and is deleted when done."""
    operation = create(client, "listed").operation.name
    with grpc.insecure_channel(cloud.endpoints.tpu_api_endpoint) as channel:
        wait = channel.unary_unary(
            "/google.longrunning.Operations/WaitOperation",
            request_serializer=operations_pb2.WaitOperationRequest.SerializeToString,
            response_deserializer=operations_pb2.Operation.FromString,
        )
        request = operations_pb2.WaitOperationRequest(name=operation)
        request.timeout.seconds = 240
        assert wait(request, timeout=240).done
    client.delete_node(name=name("listed")).result(timeout=240)
    listed = client.list_operations(operations_pb2.ListOperationsRequest(name=PARENT)).operations
    assert operation in [one.name for one in listed]
    client.delete_operation(operations_pb2.DeleteOperationRequest(name=operation))
    with pytest.raises(exceptions.NotFound):
        client.get_operation(operations_pb2.GetOperationRequest(name=operation))


def test_errors_carry_code_reason_and_details(client: tpu_v2.TpuClient) -> None:
    """Refusals arrive as the client's typed errors, with reason, domain and quota details filled in."""
    with pytest.raises(exceptions.PermissionDenied) as denied:
        client.get_node(name="projects/local-project/locations/mars-north1-a/nodes/x")
    assert (denied.value.reason, denied.value.domain) == ("LOCATION_POLICY_VIOLATED", "googleapis.com")
    with pytest.raises(exceptions.ResourceExhausted) as exhausted:
        create(client, "too-big", accelerator_type="v5litepod-16", scheduling_config={})
    violation = exhausted.value.details[0].violations[0]
    assert violation.description == f"Quota '{METRIC}' exhausted. Limit 8 in zone europe-west4-b"
    with pytest.raises(exceptions.InvalidArgument, match="could not be found in the zonal accelerator configurations"):
        create(client, "bad-type", accelerator_type="v9-1")


def test_an_unimitated_method_says_so_by_name(client: tpu_v2.TpuClient) -> None:
    """What the local cloud does not imitate is UNIMPLEMENTED with its name, not silence."""
    client.create_queued_resource(parent=PARENT, queued_resource_id="reset", queued_resource=queued_resource("reset"))
    with pytest.raises(exceptions.MethodNotImplemented, match="ResetQueuedResource"):
        client.reset_queued_resource(name=f"{PARENT}/queuedResources/reset")


def test_a_stock_out_in_the_operation_is_typed(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """Code 8 inside the operation reaches the synchronous client as ResourceExhausted, and the node is gone."""
    text = 'There is no more capacity in the zone "europe-west4-b"; you can try in another zone'
    cloud.add_fault("tpu.operation", {"target": "*/stock-out"}, action="error", code=8, message=text, after=0.05)
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        create(client, "stock-out").result(timeout=240)
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=name("stock-out"))


def test_an_accepted_create_may_lose_its_answer(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """The caller gets UNAVAILABLE, yet the node comes up, and a second create is ALREADY_EXISTS."""
    cloud.add_fault("tpu.call", {"method": "CreateNode", "name": "*/lost"}, action="lose-response")
    with pytest.raises(exceptions.ServiceUnavailable):
        create(client, "lost")
    with pytest.raises(exceptions.AlreadyExists):
        create(client, "lost")
    eventually(lambda: state(client, "lost"), lambda now: now == Node.State.READY)


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"code": 13, "message": "an internal error has occurred"}, exceptions.InternalServerError),
        ({"code": 14}, exceptions.ServiceUnavailable),
        ({"code": 7, "reason": "SERVICE_DISABLED"}, exceptions.PermissionDenied),
    ],
)
def test_a_call_may_fail_once(
    cloud: BackgroundCloud, client: tpu_v2.TpuClient, params: dict[str, Any], error: type[Exception]
) -> None:
    """A scripted error strikes the call it names, has no effect on the truth, and is then over."""
    cloud.add_fault("tpu.call", {"method": "ListNodes"}, action="error", **params)
    with pytest.raises(error):
        client.list_nodes(parent=PARENT)
    assert client.list_nodes(parent=PARENT).unreachable == []


def test_throttling_says_when_to_come_back(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """A scripted 429 carries RetryInfo with its delay."""
    cloud.add_fault("tpu.call", {"method": "GetNode", "name": "*/throttled"}, action="error", code=8, retry_after=1.5)
    with pytest.raises(exceptions.ResourceExhausted) as caught:
        client.get_node(name=name("throttled"))
    assert caught.value.details[0].retry_delay.ToMilliseconds() == 1500


async def test_a_hanging_call_ends_with_its_client(cloud: BackgroundCloud, async_client: tpu_v2.TpuAsyncClient) -> None:
    """A call that is never answered ends when its client gives up, and the log shows no code for it."""
    hang = cloud.add_fault("tpu.call", {"method": "GetNode", "name": "*/hanging"}, action="hang")
    call = asyncio.ensure_future(async_client.get_node(name=name("hanging"), timeout=240))

    async def is_unused() -> bool:
        return hang in cloud.cloud.faults.unused()

    async def logged() -> list[LoggedCall]:
        return [row for row in list(cloud.cloud.meter.calls.latest) if "hanging" in row.resource]

    await eventually_async(is_unused, lambda unused: not unused)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (row,) = await eventually_async(logged, bool)
    assert (row.method, row.code) == ("Tpu/GetNode", -1)


def test_a_slow_call_answers_late_but_right(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """A delayed call outlasts a short deadline and succeeds with a longer one."""
    cloud.add_fault("tpu.call", {"method": "ListNodes"}, times=2, action="delay", seconds=0.3)
    with pytest.raises(exceptions.DeadlineExceeded):
        client.list_nodes(parent=PARENT, timeout=0.1)
    assert client.list_nodes(parent=PARENT, timeout=240).unreachable == []


def test_a_never_ending_operation_outlasts_the_client(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """The client's own waiting gives up with the builtin TimeoutError although the node is READY."""
    cloud.add_fault("tpu.operation", {"target": "*/endless"}, action="never")
    operation = create(client, "endless")
    eventually(lambda: state(client, "endless"), lambda now: now == Node.State.READY)
    with pytest.raises(TimeoutError):
        operation.result(timeout=0.2)


@pytest.mark.filterwarnings("ignore:Unrecognized State enum value")
def test_a_future_state_reaches_the_client_as_a_number(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """A state that the client does not know arrives as a plain integer."""
    cloud.add_fault("node.timeline", {"node": "future"}, states=[[0.05, 99]])
    create(client, "future")
    assert eventually(lambda: client.get_node(name=name("future")).state, lambda now: now == 99) == 99


async def test_a_zone_that_does_not_answer_is_named_by_the_pager(
    cloud: BackgroundCloud, async_client: tpu_v2.TpuAsyncClient
) -> None:
    """An empty list with an unreachable zone is no proof that nothing runs."""
    cloud.add_fault("tpu.zone", {"zone": "us-east1-d", "method": "ListNodes"}, action="unreachable")
    pager = await async_client.list_nodes(parent="projects/local-project/locations/-")
    assert list(pager.unreachable) == ["us-east1-d"]


def test_a_zone_that_is_away_answers_no_call(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """While a zone is away a resource in it can neither be read nor deleted, and a list of all zones names it."""
    create(client, "away")
    zone = name("away").split("/")[3]
    silent = cloud.cloud.state.backend.unreachable
    cloud.call(lambda: silent.add(zone))
    for call in (client.get_node, client.delete_node):
        with pytest.raises(exceptions.ServiceUnavailable, match=zone):
            call(name=name("away"), retry=None)
    assert list(client.list_nodes(parent="projects/local-project/locations/-").unreachable) == [zone]
    cloud.call(silent.clear)
    assert client.get_node(name=name("away")).name == name("away")


def test_pages_are_followed_by_the_pager(client: tpu_v2.TpuClient) -> None:
    """The client's pager walks through pages of one and sees every node once."""
    create(client, "page-a")
    create(client, "page-b")
    request = tpu_v2.ListNodesRequest(parent="projects/local-project/locations/-", page_size=1)
    seen = [node.name.rpartition("/")[2] for node in client.list_nodes(request)]
    assert [one for one in seen if one.startswith("page-")] == ["page-a", "page-b"]


def test_every_call_is_on_the_record(cloud: BackgroundCloud, client: tpu_v2.TpuClient) -> None:
    """The audit holds method, resource, time and code of refused calls too."""
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=name("nobody"))
    calls = [call for call in cloud.call(lambda: cloud.cloud.dump(calls=True))["audit"] if "nobody" in call["resource"]]
    assert [(call["method"], call["code"]) for call in calls] == [("Tpu/GetNode", 5)]
    assert datetime.fromisoformat(calls[0]["at"]).tzinfo is not None
