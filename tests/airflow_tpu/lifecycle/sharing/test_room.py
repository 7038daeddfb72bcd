# SPDX-License-Identifier: Apache-2.0
"""After a create the younger of two TPUs for the last place of a row is given back."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import labels
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.errors import Fault, GrantViolation, RowTaken
from airflow_tpu.lifecycle.capacity import Step
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.ensure_tpu import recover
from airflow_tpu.lifecycle.project_snapshot import take_snapshot
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.sharing.room import require_row
from airflow_tpu.lifecycle.waits.polling import Waiting
from tests.airflow_tpu.cloud_env import FORM, KEY, CloudEnv, now

ROW = 5
"""On-demand v2-8 devices of the grant of the local cloud."""


async def create(env: CloudEnv, client: TPUClient, before: int, after: int) -> None:
    """Create our TPU with a permit, other people's some moments before and after it, and look again."""
    order = env.order(tier=Tier.ON_DEMAND)
    record = env.runs.update(env.lease(), RunRecord.next_incarnation)
    permit = order.permit(await take_snapshot(client), record, now())
    for number in range(before):
        env.foreign_node(f"before-{number}")
    await client.create(order.spec, order.stamp(record), permit)
    for number in range(after):
        env.foreign_node(f"after-{number}")
    await require_row(client, env.grant, order.request(KEY, record.lease.expires_at), record)


@pytest.mark.parametrize(("before", "after"), [(ROW - 1, 0), (ROW - 1, 1), (0, ROW)])
async def test_what_is_younger_does_not_count(env: CloudEnv, client: TPUClient, before: int, after: int) -> None:
    """A TPU that found room when it was requested keeps it against those that have come since."""
    await create(env, client, before, after)


async def test_the_younger_gives_way(env: CloudEnv, client: TPUClient) -> None:
    """One that came too late for the last place is named, with those that hold the row."""
    with pytest.raises(RowTaken) as caught:
        await create(env, client, ROW, 0)
    for words in (KEY.node_id(1), "is given back", "5 on-demand v2-8 devices", "before-4"):
        assert words in str(caught.value)


async def test_a_run_without_its_place_gives_the_tpu_back_and_waits(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """As without capacity: nothing of it is left, nothing is counted, and the run asks again, also while it is full."""
    record = env.runs.update(env.lease(), RunRecord.next_incarnation)
    env.foreign_node(record.node_id, labels(KEY, record.stamp))
    run = RunContext(KEY, {**FORM, "provisioning": "node"}, Connections(), env.grant)
    full = GrantViolation([Fault("devices", 1, "1 asked and 5 held are more than 5 devices; held by n-1")])
    for error, words in ((RowTaken("an older TPU was faster"), "an older TPU was faster"), (full, "held by n-1")):
        caplog.clear()
        step = await asyncio.to_thread(recover, run, env.runs.read(KEY), error, Waiting(0.1, 1.0))
        assert isinstance(step, Step)
        assert step.resume_at is not None
        assert step.resume_at > now() + dt.timedelta(seconds=1)
        assert words in caplog.text
    assert env.runs.read(KEY).capacity_search is not None
    assert len(env.calls("DeleteNode")) == 1


async def test_a_row_that_is_full_from_the_start_is_no_wait(env: CloudEnv, client: TPUClient) -> None:
    """A run that never had room is refused, as the grant check says before it."""
    record = env.runs.update(env.lease(), RunRecord.next_incarnation)
    run = RunContext(KEY, {**FORM, "provisioning": "node"}, Connections(), env.grant)
    with pytest.raises(GrantViolation):
        await asyncio.to_thread(recover, run, record, GrantViolation([]), Waiting(0.1, 1.0))
