"""One lease, one living TPU: adopted where there is one, created where there is none."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened
from airflow_tpu.core.tpu.labels import RunKey, labels, token_of
from airflow_tpu.core.tpu.resource_name import node_name
from airflow_tpu.errors import AccessDenied, GrantViolation, LeaseLost, NameTaken, StockOut
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.lifecycle.waits.target import Target
from localcloud.rules.settings import Latencies
from tests.airflow_tpu.conftest import Open
from tests.airflow_tpu.site import KEY, ZONE, Site, pace, request_delete

FIRST, SECOND = KEY.node_id(1), KEY.node_id(2)
NODE, REPLACEMENT = (node_name("local-project", ZONE, node_id) for node_id in (FIRST, SECOND))
BOTH = pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])


async def ready(site: Site, client: TPUClient, queued: bool = False) -> Target:
    """Ensure a TPU and wait until it is READY."""
    target = await site.ensure(client, queued)
    await until_ready(client, target, pace())
    return target


def opened(site: Site) -> list[str]:
    """Incarnations the ledger knows of."""
    return sorted(event.node_id for event in site.ledger.events(KEY) if isinstance(event, Opened))


def closed(site: Site) -> dict[str, Closed]:
    """Ended incarnations by node id."""
    return {event.node_id: event for event in site.ledger.events(KEY) if isinstance(event, Closed)}


@BOTH
async def test_first_incarnation_is_created_and_recorded(site: Site, client: TPUClient, queued: bool) -> None:
    """The TPU has the derived name, and its record is in the ledger with what covers it."""
    target = await ready(site, client, queued)
    assert target.node == NODE
    (event,) = site.ledger.events(KEY)
    assert isinstance(event, Opened)
    assert (event.node_id, event.chips, event.provisioning == "queued-resource") == (FIRST, 4, queued)
    assert event.allowance is not None
    assert site.runs.read(KEY).incarnation == 1


async def test_record_is_written_before_the_create_call(site: Site, client: TPUClient) -> None:
    """A create that fails has left its record: what may exist is always known."""
    site.cloud.add_fault("tpu.call", {"method": "CreateNode"}, action="error", code=7, message="no")
    with pytest.raises(AccessDenied):
        await site.ensure(client)
    assert opened(site) == [FIRST]
    assert site.nodes() == {}


async def test_nothing_is_created_outside_the_grant(site: Site, client: TPUClient) -> None:
    """Without a permit there is no call, no record and no incarnation."""
    order = site.order(zone="us-central1-b")
    with pytest.raises(GrantViolation, match=r"; nothing was created:\n.*us-central1-b"):
        await site.provisioner(client, order, site.lease()).ensure()
    assert site.calls("CreateNode") == []
    assert opened(site) == []
    assert site.runs.read(KEY).incarnation == 0


async def test_lost_lease_creates_nothing(site: Site, client: TPUClient) -> None:
    """An attempt that was overtaken while it looked around does not create a second TPU."""
    older = site.lease()
    site.lease()
    with pytest.raises(LeaseLost):
        await site.provisioner(client, site.order(), older).ensure()
    assert site.calls("CreateNode") == []


@BOTH
async def test_second_try_adopts_what_is_there(site: Site, client: TPUClient, queued: bool) -> None:
    """A second try of one attempt finds the TPU by its labels and creates nothing."""
    provisioner = site.provisioner(client, site.order(queued), site.lease())
    first = await provisioner.ensure()
    await until_ready(client, first, pace())
    again = await provisioner.ensure()
    assert (again.node, again.queued) == (first.node, first.queued)
    assert len(site.calls("CreateNode")) + len(site.calls("CreateQueuedResource")) == 1
    assert opened(site) == [FIRST]


async def test_waiting_queued_resource_is_adopted(site: Site, client: TPUClient) -> None:
    """A request that is still in the queue keeps its place there."""
    site.cloud.add_fault("queued.timeline", wait="forever")
    first = await site.ensure(client, queued=True)
    again = await site.ensure(client, queued=True)
    assert again.queued == first.queued == NODE.queued
    assert list(site.queued()) == [FIRST]


async def test_newer_attempt_fences_the_older_one(site: Site, client: TPUClient) -> None:
    """The adopting attempt writes its token on the node; the older one's late kill deletes nothing."""
    await ready(site, client)
    older = site.runs.read(KEY)
    await site.ensure(client)
    newer = site.runs.read(KEY)
    node = await client.node(NODE)
    assert node.labels == labels(KEY, newer.stamp)
    assert await request_delete(client, KEY, older.lease.token) == []
    assert site.nodes() == {FIRST: "READY"}


@BOTH
async def test_terminated_node_is_deleted_and_the_next_one_created(site: Site, client: TPUClient, queued: bool) -> None:
    """After a preemption there is one TPU, the next; the ledger ends the first when it was taken away."""
    await ready(site, client, queued)
    _remember_ready(site)
    site.cloud.preempt(FIRST)
    target = await ready(site, client, queued)
    assert target.node_id == SECOND
    assert site.nodes() == {SECOND: "READY"}
    assert opened(site) == [FIRST, SECOND]
    end = closed(site)[FIRST]
    assert (end.end_reason, list(closed(site))) == (EndReason.PREEMPTED, [FIRST])


def _remember_ready(site: Site) -> None:
    """Note in the lease what the create task notes there."""
    start = dt.datetime.fromisoformat(site.cloud.meter()["nodes"][0]["ready"][0]["start"])
    site.runs.update(site.runs.read(KEY), lambda record: record.with_life(FIRST, ready_at=start))


async def test_terminated_node_that_holds_all_quota_is_gone_before_the_next_create(open_site: Open) -> None:
    """With quota for one TPU the next incarnation is not refused because of the last one's terminated node."""
    quota = {"TPUV2sPreemptiblePerProjectPerZoneForTPUAPI@us-central1-f": 8}
    site = open_site(quota=quota, latencies=Latencies(deleting=1.0))
    async with site.client() as client:
        await ready(site, client)
        site.cloud.preempt(FIRST)
        target = await site.ensure(client)
    assert target.node_id == SECOND
    assert len(site.calls("CreateNode")) == 2


@BOTH
async def test_lost_create_answer_leaves_one_tpu(site: Site, client: TPUClient, queued: bool) -> None:
    """A create that took effect without an answer is found by its name, and not asked for twice."""
    method = "CreateQueuedResource" if queued else "CreateNode"
    site.cloud.add_fault("tpu.call", {"method": method}, action="lose-response")
    target = await ready(site, client, queued)
    assert target.node_id == FIRST
    assert site.nodes() == {FIRST: "READY"}
    assert site.cloud.cloud.faults.unused() == []


async def test_name_of_a_colleague_is_left_alone(site: Site, client: TPUClient) -> None:
    """A node that happens to have our name without our labels is neither adopted nor deleted."""
    site.foreign_node(FIRST)
    with pytest.raises(NameTaken):
        await site.ensure(client)
    assert list(site.nodes()) == [FIRST]
    assert site.calls("DeleteNode") == []


async def test_look_alikes_are_neither_adopted_nor_swept(site: Site, client: TPUClient) -> None:
    """A longer name, another run's labels and another tool's labels are not ours."""
    other = RunKey(KEY.dag_id, "manual__2026-01-02T00:00:00+00:00")
    site.foreign_node(f"{KEY.name}-1x", labels={"airflow-tpu-run": KEY.digest})
    site.foreign_node(other.node_id(1), labels=labels(other, site.lease(other).stamp))
    site.cloud.preempt(other.node_id(1))
    target = await ready(site, client)
    assert target.node_id == FIRST
    assert set(site.nodes()) == {FIRST, f"{KEY.name}-1x", other.node_id(1)}


async def test_node_that_is_being_deleted_is_not_adopted(open_site: Open) -> None:
    """A node in DELETING is on its way out: the next incarnation is created beside it."""
    site = open_site(latencies=Latencies(deleting=1.0))
    async with site.client() as client:
        first = await ready(site, client)
        await client.delete_node(first.node)
        assert (await site.ensure(client)).node_id == SECOND


async def test_failed_request_is_swept(site: Site, client: TPUClient) -> None:
    """A queued resource that failed holds quota until it is deleted; the next try deletes it."""
    message = 'There is no more capacity in the zone "us-central1-f"'
    site.cloud.add_fault("queued.timeline", fail={"code": 8, "message": message})
    first = await site.ensure(client, queued=True)
    with pytest.raises(StockOut):
        await until_ready(client, first, pace())
    target = await ready(site, client, queued=True)
    assert target.node_id == SECOND
    assert list(site.queued()) == [SECOND]
    assert closed(site)[FIRST].end_reason is EndReason.NEVER_READY


async def test_incarnations_count_on_where_the_project_stands(site: Site, client: TPUClient) -> None:
    """With the lease object lost, numbers continue from the newest TPU that the project knows."""
    await ready(site, client)
    site.cloud.preempt(FIRST)
    site.runs.release(KEY)
    assert (await site.ensure(client)).node_id == SECOND
    assert token_of((await client.node(REPLACEMENT)).labels) == site.runs.read(KEY).lease.token


async def test_zone_of_the_living_tpu_wins(site: Site, client: TPUClient) -> None:
    """A TPU that lives in another zone than the form names now is used where it is."""
    await ready(site, client)
    order = site.order(zone="us-central1-b")
    target = await site.provisioner(client, order, site.lease()).ensure()
    assert target.node == NODE
