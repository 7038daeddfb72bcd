# SPDX-License-Identifier: Apache-2.0
"""What random interleavings have found, each as one history: calls that come late, lists that are behind, numbers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.clients.tpu_calls import APIEndpoint, Listing
from airflow_tpu.clients.tpu_messages import Stamp
from airflow_tpu.clients.tpu_retry import CallTiming
from airflow_tpu.core.grant.authorize import Permit
from airflow_tpu.core.ledger.events import Closed, EndReason
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import labels
from airflow_tpu.core.tpu.spec import QueuedView, TPUSpec, TPUView
from airflow_tpu.errors import AccessDenied, LeaseLost
from airflow_tpu.lifecycle.ends.deletion import delete_seen
from airflow_tpu.lifecycle.ends.expired import delete_expired, note, what_is_left
from airflow_tpu.lifecycle.ends.forgotten import close_forgotten, forget_runs
from airflow_tpu.lifecycle.ends.incarnation_end import noted_ends
from airflow_tpu.lifecycle.ends.records import close_incarnations
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.reap import lease_states
from airflow_tpu.lifecycle.release import abandon
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.ready import until_ready
from localcloud.rules.settings import Latencies
from localcloud.testing import eventually
from tests.airflow_tpu.attempts import run_context
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, poll_policy, request_delete
from tests.airflow_tpu.conftest import Open
from tests.airflow_tpu.identities import AIRFLOW, OWN

FIRST, SECOND = KEY.node_id(1), KEY.node_id(2)


class Behind(TPUClient):
    """A client whose lists do not show yet what exists."""

    async def nodes(self, zone: str = "-") -> Listing[TPUView]:
        """Nothing, long after something was created."""
        return Listing(())

    async def queued_resources(self, zone: str = "-") -> Listing[QueuedView]:
        """Nothing either."""
        return Listing(())


class Overtaken(TPUClient):
    """A client whose create call takes so long that a newer attempt of the run moves on meanwhile.

    :param env: where the run's lease is.
    """

    def __init__(self, endpoint: APIEndpoint, timing: CallTiming, env: CloudEnv) -> None:
        super().__init__(endpoint, timing)
        self.env = env

    async def create(self, spec: TPUSpec, stamp: Stamp, permit: Permit) -> str:
        """Create, after the lease has moved on to the next incarnation."""
        newer = self.env.lease()
        self.env.runs.update(newer, lambda record: record.next_incarnation())
        return await super().create(spec, stamp, permit)


@pytest.mark.parametrize("queued", [False, True], ids=["node", "queued-resource"])
async def test_what_a_list_does_not_show_is_found_by_its_name(env: CloudEnv, client: TPUClient, queued: bool) -> None:
    """A try that sees empty lists adopts the TPU of its run all the same, and creates no second one."""
    first = await env.provisioner(client, env.order(queued), env.lease()).ensure()
    async with Behind(client.endpoint, client.calls.timing) as behind:
        again = await env.provisioner(behind, env.order(queued), env.lease()).ensure()
    assert again.node == first.node
    assert len(env.calls("CreateNode")) + len(env.calls("CreateQueuedResource")) == 1


async def test_create_that_comes_late_deletes_its_tpu(env: CloudEnv, client: TPUClient) -> None:
    """An attempt that was overtaken while it requested a TPU deletes that TPU, and the ledger says so."""
    async with Overtaken(client.endpoint, client.calls.timing, env) as slow:
        with pytest.raises(LeaseLost, match="too late"):
            await env.provisioner(slow, env.order(), env.lease()).ensure()
    await until_gone(client, KEY, poll_policy())
    assert [end.node_id for end in noted_ends(env.runs.read(KEY))] == [FIRST]


async def test_sweep_closes_no_record_of_a_newer_number(env: CloudEnv, client: TPUClient) -> None:
    """What another process has opened since the look at the project is not closed along with older incarnations."""
    await env.provisioner(client, env.order(), env.lease()).ensure()
    close_incarnations(env.ledger, None, KEY, [], up_to=0)
    assert [event.node_id for event in env.ledger.open_records()] == [FIRST]
    close_incarnations(env.ledger, None, KEY, [], up_to=1)
    assert env.ledger.open_records() == []


async def test_cleared_run_is_counted_under_a_new_number(env: CloudEnv, client: TPUClient) -> None:
    """A run that is cleared after its teardown never uses a name again: its second TPU has a record of its own."""
    for _ in range(2):
        target = await env.provisioner(client, env.order(), env.lease()).ensure()
        await until_ready(client, target, poll_policy())
        endings = await request_delete(client, KEY)
        close_incarnations(env.ledger, env.runs.read(KEY), KEY, endings)
        await until_gone(client, KEY, poll_policy())
        env.runs.release(KEY)
    assert sorted(e.node_id for e in env.ledger.events(KEY) if isinstance(e, Closed)) == [FIRST, SECOND]


async def adopted(env: CloudEnv, client: TPUClient) -> tuple[RunRecord, RunRecord]:
    """A queued resource that one attempt has made and a newer one has adopted: its labels cannot be changed."""
    env.cloud.add_fault("queued.timeline", wait="forever")
    older = env.lease()
    await env.provisioner(client, env.order(queued=True), older).ensure()
    newer = env.lease()
    await env.provisioner(client, env.order(queued=True), newer).ensure()
    return older, newer


async def test_old_attempt_leaves_a_waiting_request_to_the_newer(env: CloudEnv, client: TPUClient) -> None:
    """A queued resource keeps the old token when it is adopted; the old attempt's late end does not touch it."""
    older, _ = await adopted(env, client)
    assert (await asyncio.to_thread(abandon, run_context(), older.lease.token)).endings == []
    assert list(env.queued()) == [FIRST]
    assert env.calls("DeleteQueuedResource") == []


async def test_newer_attempt_deletes_the_request_that_it_has_adopted(env: CloudEnv, client: TPUClient) -> None:
    """Ended by a person while it waits, the holder of the lease deletes the request, whichever attempt has made it."""
    _, newer = await adopted(env, client)
    done = await asyncio.to_thread(abandon, run_context(), newer.lease.token)
    assert done.failures == []
    assert len(env.calls("DeleteQueuedResource")) == 1
    eventually(env.queued, lambda queued: queued == {})


async def test_newer_attempt_deletes_the_node_on_its_way_that_it_has_adopted(open_env: Open) -> None:
    """A node that is still being created keeps the old token as well, and goes with the attempt that waits for it."""
    env = open_env(latencies=Latencies(creating=600.0))
    async with env.client() as client:
        await env.provisioner(client, env.order(), env.lease()).ensure()
        newer = env.lease()
        await env.provisioner(client, env.order(), newer).ensure()
        await asyncio.to_thread(abandon, run_context(), newer.lease.token)
    assert len(env.calls("DeleteNode")) == 1


async def test_delete_needs_no_lease_that_can_be_read(env: CloudEnv, client: TPUClient) -> None:
    """An attempt that is ended while the bucket refuses it deletes what carries its token; the books come later."""
    record = env.lease()
    await until_ready(client, await env.provisioner(client, env.order(), record).ensure(), poll_policy())
    env.cloud.add_fault("gcs.request", {"object": f"*leases/{KEY.name}*"}, times=1000, action="403")
    assert (await asyncio.to_thread(abandon, run_context(), "another token")).endings == []
    assert env.nodes() == {FIRST: "READY"}
    done = await asyncio.to_thread(abandon, run_context(), record.lease.token)
    assert [end.node_id for end in done.endings] == [FIRST]
    await until_gone(client, KEY, poll_policy())


async def test_ended_attempt_notes_what_it_deletes(env: CloudEnv, client: TPUClient) -> None:
    """A TPU that became READY unseen is counted although its attempt is ended by a person."""
    record = env.lease()
    await until_ready(client, await env.provisioner(client, env.order(), record).ensure(), poll_policy())
    await asyncio.to_thread(abandon, run_context(), record.lease.token)
    (end,) = noted_ends(env.runs.read(KEY))
    assert end.reason is EndReason.FINISHED
    await until_gone(client, KEY, poll_policy())
    close_incarnations(env.ledger, env.runs.read(KEY), KEY, [])
    (event,) = [event for event in env.ledger.events(KEY) if isinstance(event, Closed)]
    assert (event.end_reason, event.ended_at) == (EndReason.STOPPED, end.at)


async def test_tpu_that_could_not_be_deleted_is_not_closed(env: CloudEnv, client: TPUClient) -> None:
    """A refused delete ends nothing: the record stays open as long as the TPU is charged."""
    await until_ready(client, await env.provisioner(client, env.order(), env.lease()).ensure(), poll_policy())
    env.cloud.add_fault("tpu.call", {"method": "DeleteNode"}, action="error", code=7, message="no")
    refused = await delete_seen(client, await take_snapshot(client), KEY)
    assert (refused.endings, [type(error) for error in refused.failures]) == ([], [AccessDenied])


async def test_reaper_ends_doubles_and_counts_what_it_ends(env: CloudEnv, client: TPUClient) -> None:
    """Of two TPUs of one living run the older goes; the ledger has what the reaper deletes in the same round."""
    await until_ready(client, await env.provisioner(client, env.order(), env.lease()).ensure(), poll_policy())
    record = env.runs.update(env.runs.read(KEY), lambda found: found.next_incarnation())
    env.foreign_node(SECOND, labels(KEY, record.stamp))
    snapshot, states = await take_snapshot(client), lease_states(env.runs, lambda *_: "running", AIRFLOW)
    done = await delete_expired(client, snapshot, states, OWN)
    note(env.stores, done)
    opened = env.ledger.open_records()
    left = await what_is_left(client, snapshot, done)
    assert close_forgotten(env.stores, states, left, opened, done.endings) == [FIRST]
    eventually(lambda: set(env.nodes()), lambda nodes: nodes == {SECOND})


async def test_silent_zone_closes_no_record(env: CloudEnv, client: TPUClient) -> None:
    """What a silent zone hides may be alive: neither its record nor its lease ends, although its run is over."""
    await env.provisioner(client, env.order(), env.lease()).ensure()
    env.cloud.add_fault("tpu.zone", {"zone": "us-central1-f"}, times=2)
    snapshot, states = await take_snapshot(client), lease_states(env.runs, lambda *_: "failed", AIRFLOW)
    assert close_forgotten(env.stores, states, snapshot, env.ledger.open_records()) == []
    assert forget_runs(env.runs, states, snapshot) == []


async def test_reaper_removes_the_lease_of_a_run_that_is_over(env: CloudEnv, client: TPUClient) -> None:
    """The lease of a run that is over goes; one that was taken again after the question to Airflow stays."""
    env.lease()
    states, snapshot = lease_states(env.runs, lambda *_: "failed", AIRFLOW), await take_snapshot(client)
    newer = env.lease()
    assert forget_runs(env.runs, states, snapshot) == []
    assert env.runs.read(KEY) == newer
    assert forget_runs(env.runs, lease_states(env.runs, lambda *_: "failed", AIRFLOW), snapshot) == [KEY.name]
    assert env.runs.all() == []


async def test_lease_stays_while_a_zone_hides_an_open_record(env: CloudEnv, client: TPUClient) -> None:
    """A run that is over and moved on from a zone that is silent now keeps its lease: its record is closed with it."""
    await env.provisioner(client, env.order(), env.lease()).ensure()
    await request_delete(client, KEY)
    await until_gone(client, KEY, poll_policy())
    env.runs.update(env.runs.read(KEY), lambda record: replace(record, zone="us-central1-b"))
    env.cloud.add_fault("tpu.zone", {"zone": "us-central1-f"}, times=2)
    snapshot, states = await take_snapshot(client), lease_states(env.runs, lambda *_: "failed", AIRFLOW)
    opened = env.ledger.open_records()
    assert forget_runs(env.runs, states, snapshot, opened) == []
    assert forget_runs(env.runs, states, await take_snapshot(client), opened) == [KEY.name]
