# SPDX-License-Identifier: Apache-2.0
"""What the API refuses, fails at or never answers, as errors of our tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_tpu import errors
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_retry import CallTiming
from airflow_tpu.consequences import MAY_BE_CREATED, NOTHING_CREATED
from airflow_tpu.core.tpu.readiness import Sighting, readiness_of
from airflow_tpu.core.tpu.resource_name import ResourceName
from localcloud.testing import TIMEOUT, eventually_async
from tests.airflow_tpu.cloud_env import BRIEF, PARENT, CloudEnv
from tests.airflow_tpu.conftest import Open

NODE = ResourceName.parse(f"{PARENT}/nodes/n-1")
STOCK_OUT = 'There is no more capacity in the zone "us-central1-f"; you can try in another zone'
SPOT_QUOTA = "TPUV2sPreemptiblePerProjectPerZoneForTPUAPI@us-central1-f"


async def failure_of(client: TPUClient, operation: str) -> errors.TPUError | None:
    """The error inside an operation, once it has ended."""
    return (await eventually_async(lambda: client.operation(operation), lambda found: found.done)).error


CALLS = [
    pytest.param(
        8, "Quota limit 'TPUV2s' has been exceeded. Limit: 16 in zone x", "", errors.QuotaExceeded, id="quota"
    ),
    pytest.param(
        8, "Quota limit 'TPUV2s' has been exceeded. Limit: 0 in zone x", "", errors.QuotaZero, id="quota-zero"
    ),
    pytest.param(8, "slow down", "RATE_LIMIT_EXCEEDED", errors.RateLimited, id="rate-by-reason"),
    pytest.param(7, "The caller lacks tpu.nodes.create", "", errors.AccessDenied, id="permission"),
    pytest.param(7, "Cloud TPU API has not been used", "SERVICE_DISABLED", errors.AccessDenied, id="api-off"),
    pytest.param(
        8, "Quota limit 'X' has been exceeded. Limit: 0", "RATE_LIMIT_EXCEEDED", errors.QuotaZero, id="zero-as-a-rate"
    ),
    pytest.param(
        8, "Quota 'X' exhausted. Limit 0.0 in zone x.", "QUOTA_EXCEEDED", errors.QuotaZero, id="zero-as-quota"
    ),
    pytest.param(8, "Quota 'X' exhausted. Limit 0.5 in zone x", "", errors.QuotaExceeded, id="small-quota"),
    pytest.param(3, "invalid AcceleratorType", "", errors.NotOffered, id="no-such-type"),
    pytest.param(9, "no default subnetwork", "", errors.ConfigError, id="no-subnetwork"),
    pytest.param(13, "an internal error has occurred", "", errors.TransientError, id="code-13"),
]


@pytest.mark.parametrize(("code", "message", "reason", "leaf"), CALLS)
async def test_refused_create_has_a_leaf(
    env: CloudEnv, client: TPUClient, code: int, message: str, reason: str, leaf: type[errors.TPUError]
) -> None:
    """Code, text and reason of a refused create decide the class; the text itself is kept."""
    detail: dict[str, Any] = {"reason": reason} if reason else {}
    env.cloud.add_fault("tpu.call", {"method": "CreateNode"}, action="error", code=code, message=message, **detail)
    with pytest.raises(leaf, match=message.split("'")[0]) as caught:
        await env.create(client)
    assert type(caught.value) is leaf
    assert caught.value.consequence == (MAY_BE_CREATED if leaf is errors.TransientError else NOTHING_CREATED)
    assert len(env.calls("CreateNode")) == 1
    assert env.nodes() == {}


async def test_zero_quota_is_recognised_by_its_details(env: CloudEnv, client: TPUClient) -> None:
    """A text without the limit, under the reason of a rate limit: the limit in the details of the error decides."""
    details: dict[str, Any] = {"reason": "RATE_LIMIT_EXCEEDED", "metadata": {"quota_limit_value": "0"}}
    env.cloud.add_fault(
        "tpu.call", {"method": "CreateNode"}, action="error", code=8, message="Quota exceeded", **details
    )
    with pytest.raises(errors.QuotaZero, match="not in the grant"):
        await env.create(client)
    assert len(env.calls("CreateNode")) == 1


@pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])
async def test_a_create_that_was_not_let_in_is_asked_again(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """One UNAUTHENTICATED, of a token that expired on its way, ends no create; nothing was carried out before it."""
    fault = env.cloud.add_fault("tpu.call", {"method": "Create*"}, action="error", code=16, message="token")
    await env.create(client, queued)
    assert len(env.calls("CreateNode")) + len(env.calls("CreateQueuedResource")) == 2
    assert fault not in env.cloud.cloud.faults.unused()


async def test_credentials_that_stay_invalid_are_no_access(env: CloudEnv) -> None:
    """A create that is never let in ends as refused, within the bound of any call."""
    env.cloud.add_fault("tpu.call", {"method": "CreateNode"}, times=1000, action="error", code=16, message="token")
    async with env.client(BRIEF) as client:
        with pytest.raises(errors.AccessDenied, match="token"):
            await env.create(client)


async def test_refused_list_or_delete_says_nothing_of_a_create(env: CloudEnv, client: TPUClient) -> None:
    """The same refusal of another call leaves it to the task to say what there is."""
    await env.create(client)
    for method, call in (("ListNodes", client.nodes), ("DeleteNode", lambda: client.delete_node(NODE))):
        env.cloud.add_fault("tpu.call", {"method": method}, action="error", code=7, message="no role")
        with pytest.raises(errors.AccessDenied, match="no role") as caught:
            await call()
        assert "created" not in str(caught.value)


@pytest.mark.parametrize(("limit", "leaf"), [(4, errors.QuotaExceeded), (0, errors.QuotaZero)])
async def test_quota_of_the_project_is_recognised(open_env: Open, limit: int, leaf: type[errors.TPUError]) -> None:
    """The API's own quota texts mean in use, or none at all."""
    env = open_env(quota={SPOT_QUOTA: limit})
    async with env.client() as client:
        with pytest.raises(leaf, match=r"us-central1-f.*EID"):
            await env.create(client)


async def test_creates_per_minute_are_a_rate_limit(open_env: Open) -> None:
    """Too many creates in a minute is a reason to wait, not a lack of quota."""
    env = open_env(creates_per_minute=1)
    async with env.client() as client:
        await env.create(client)
        with pytest.raises(errors.RateLimited):
            await env.create(client)


async def test_a_look_waits_out_a_rate_limit(env: CloudEnv, client: TPUClient) -> None:
    """Too many requests in a minute do not end a try: what only looks is asked again, and then answered."""
    await env.create(client)
    env.cloud.add_fault("tpu.call", {"method": "ListNodes"}, action="error", code=8, message="slow down", times=3)
    assert [node.name for node in (await client.nodes("us-central1-f")).items] == [NODE]
    assert len([call for call in env.calls("ListNodes") if call["resource"] == PARENT]) == 4


async def test_closed_zone_is_no_access(open_env: Open) -> None:
    """A zone that is not open to the project is named as such."""
    env = open_env(closed_zones=frozenset({"us-central1-f"}))
    async with env.client() as client:
        with pytest.raises(errors.AccessDenied, match="not open to this project"):
            await env.create(client)


async def test_stock_out_arrives_in_the_operation(env: CloudEnv, client: TPUClient) -> None:
    """A create that was accepted and failed for lack of capacity is a stock-out, not a failed quota."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, action="error", code=8, message=STOCK_OUT)
    error = await failure_of(client, await env.create(client))
    assert isinstance(error, errors.StockOut)
    assert str(NODE) in str(error)


async def test_code_13_in_the_operation_is_transient(env: CloudEnv, client: TPUClient) -> None:
    """An operation that ends with an internal error says that it may hide something else."""
    env.cloud.add_fault("tpu.operation", {"verb": "create"}, action="error", code=13)
    error = await failure_of(client, await env.create(client))
    assert isinstance(error, errors.TransientError)
    assert "stock-out" in str(error)


@pytest.mark.parametrize("code", [2, 9, 13])
@pytest.mark.parametrize("queued", [False, True])
async def test_a_create_that_never_works_says_what_to_check(
    env: CloudEnv, client: TPUClient, queued: bool, code: int
) -> None:
    """Codes without a meaning of their own are tried again; the message says what they hide, and that nothing came."""
    said: dict[str, Any] = {"code": code, "message": "an internal error has occurred [EID: 0x1]"}
    if queued:
        env.cloud.add_fault("queued.timeline", {}, fail=said)
        await env.create(client, queued=True)
        name = ResourceName.parse(f"{PARENT}/queuedResources/n-1")
        failed = await eventually_async(lambda: client.queued_resource(name), lambda found: found.state == "FAILED")
        error = readiness_of(Sighting(None, failed, is_queued=True, operation_done=True)).error
    else:
        env.cloud.add_fault("tpu.operation", {"verb": "create"}, action="error", **said)
        error = await failure_of(client, await env.create(client))
    assert isinstance(error, errors.TransientError)
    assert "it will not work as asked: check network, subnetwork and service_account" in str(error)
    assert "outcome is not known" not in str(error)
    assert env.nodes() == {}


async def test_name_that_is_taken(env: CloudEnv, client: TPUClient) -> None:
    """A second node of one name is refused as taken."""
    await env.create(client)
    with pytest.raises(errors.NameTaken):
        await env.create(client)


async def test_reading_survives_503(env: CloudEnv, client: TPUClient) -> None:
    """A repeatable call is tried again until it is answered."""
    env.cloud.add_fault("tpu.call", {"method": "ListNodes"}, times=3, action="error", code=14)
    assert (await client.nodes()).items == ()
    assert len(env.calls("ListNodes")) == 4


async def test_endless_503_is_transient(env: CloudEnv) -> None:
    """When the tries are used up, the error names the API's failure and not the client's own bookkeeping."""
    env.cloud.add_fault("tpu.call", {"method": "GetNode"}, times=1000, action="error", code=14, message="try later")
    async with env.client(BRIEF) as client:
        with pytest.raises(errors.TransientError, match="try later"):
            await client.node(NODE)


async def test_hanging_call_ends_by_its_own_timeout(env: CloudEnv) -> None:
    """A call that is never answered ends after its time and is tried again."""
    env.cloud.add_fault("tpu.call", {"method": "GetNode"}, action="hang")
    async with env.client(CallTiming(answer=0.3, retry=TIMEOUT, pause=0.02)) as client:
        with pytest.raises(errors.ResourceNotFound):
            await client.node(NODE)
    assert len(env.calls("GetNode")) >= 2  # on a slow machine an answer may be too late once more


async def test_api_that_is_away_is_transient(env: CloudEnv) -> None:
    """A port where nothing listens is a transient error of the API."""
    nobody = replace(env.client().endpoint, address="127.0.0.1:9")
    async with TPUClient(nobody, CallTiming(answer=0.3, retry=0.5, pause=0.05)) as client:
        with pytest.raises(errors.TransientError):
            await client.nodes()


async def test_node_create_is_never_repeated_blindly(env: CloudEnv, client: TPUClient) -> None:
    """A create without a request id whose answer is lost is asked once: the caller looks first."""
    env.cloud.add_fault("tpu.call", {"method": "CreateNode"}, action="lose-response")
    with pytest.raises(errors.TransientError, match="outcome is not known"):
        await env.create(client)
    assert len(env.calls("CreateNode")) == 1


async def test_queued_create_is_repeated_with_its_request_id(env: CloudEnv, client: TPUClient) -> None:
    """A queued resource whose answer is lost is asked for again, which finds the same operation."""
    env.cloud.add_fault("tpu.call", {"method": "CreateQueuedResource"}, action="lose-response")
    operation = await env.create(client, queued=True)
    assert (await client.operation(operation)).name == operation
    assert len(env.calls("CreateQueuedResource")) == 2
    assert list(env.queued()) == ["n-1"]


@pytest.mark.parametrize("verb", ["node", "queued_resource", "operation"])
async def test_unknown_resource_is_not_found(client: TPUClient, verb: str) -> None:
    """What the API does not know is an error of its own, which callers take for an answer."""
    collection = {"node": "nodes", "queued_resource": "queuedResources", "operation": "operations"}[verb]
    with pytest.raises(errors.ResourceNotFound, match="none"):
        await getattr(client, verb)(f"{PARENT}/{collection}/none")
