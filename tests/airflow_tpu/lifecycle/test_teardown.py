# SPDX-License-Identifier: Apache-2.0
"""A teardown that dies on the way: the next try names the end as this one would have."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.errors import AccessDenied
from airflow_tpu.lifecycle.teardown import teardown
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.polling import Waiting
from tests.airflow_tpu.attempts import NODE, ready, run_context
from tests.airflow_tpu.cloud_env import KEY, CloudEnv, poll_policy

TO_THE_END = Waiting(0.05, None)


async def test_what_a_dead_try_has_deleted_did_not_vanish(env: CloudEnv, client: TPUClient) -> None:
    """The delete is accepted and its note does not reach the bucket; the next try finds the TPU gone, as it should."""
    work = run_context()
    record = await ready(work, client)
    work.stores.runs.update(record, lambda found: found.with_life(NODE.id, ready_at=work.clock.now()))
    refusal = {"point": "gcs.request", "match": {"object": "*/leases/*", "method": "P*"}, "after": 1, "times": 1}
    env.cloud.cloud.faults.add({**refusal, "params": {"action": "403"}})
    with pytest.raises(AccessDenied, match="leases"):
        await asyncio.to_thread(teardown, work, TO_THE_END)
    await until_gone(client, KEY, poll_policy())
    ended = await asyncio.to_thread(teardown, work, TO_THE_END)
    assert isinstance(ended, list)
    assert [event.end_reason for event in ended] == [EndReason.FINISHED]


@pytest.mark.parametrize("blind", ["ledger", "leases"])
async def test_what_no_list_shows_yet_is_deleted_at_once(env: CloudEnv, client: TPUClient, blind: str) -> None:
    """A TPU of the last seconds is read by the name that ledger and lease have, though one of the two is silent."""
    env.cloud.add_fault("tpu.list", {"event": "create"}, times=99, seconds=3600.0)
    work = run_context()
    await env.ensure(client)
    env.cloud.add_fault("gcs.request", {"object": f"*/{blind}/*"}, times=99, action="403")
    with contextlib.suppress(AccessDenied):
        await asyncio.to_thread(teardown, work, Waiting(0.05, 0.0))
    assert len(env.calls("DeleteNode")) == 1


async def test_what_is_gone_before_the_teardown_has_vanished(env: CloudEnv, client: TPUClient) -> None:
    """A TPU that a stranger has deleted before is not taken for one that the teardown has deleted."""
    work = run_context()
    record = await ready(work, client)
    work.stores.runs.update(record, lambda found: found.with_life(NODE.id, ready_at=work.clock.now()))
    await client.delete_node(NODE)
    await until_gone(client, KEY, poll_policy())
    ended = await asyncio.to_thread(teardown, work, TO_THE_END)
    assert isinstance(ended, list)
    assert [event.end_reason for event in ended] == [EndReason.VANISHED]


async def test_log_and_ledger_name_the_same_end(
    env: CloudEnv, client: TPUClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A TPU that failed its run is READY when it is deleted: neither log nor ledger calls it finished."""
    caplog.set_level(logging.INFO, "airflow_tpu")
    work = run_context()
    record = await ready(work, client)
    failed = {"ready_at": work.clock.now(), "cause": EndReason.FAILED}
    work.stores.runs.update(record, lambda found: found.with_life(NODE.id, **failed))
    ended = await asyncio.to_thread(teardown, work, TO_THE_END)
    assert isinstance(ended, list)
    assert [event.end_reason for event in ended] == [EndReason.FAILED]
    assert f"deleting {NODE.id} (failed)" in caplog.text
