# SPDX-License-Identifier: Apache-2.0
"""A record that cannot be read: the TPU is deleted all the same, and the damage is reported."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.errors import LedgerError
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.operators.reaper import CloudTPUReaperOperator
from airflow_tpu.operators.tpu import CloudTPUDeleteOperator
from airflow_tpu.stores.grants import store_root
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.runs import RunStore
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import BUCKET, KEY, ZONE, CloudEnv, context, now, poll_policy

CONF = {"script": "hello.py", "accelerator_type": "v2-8", "zone": ZONE, "artifacts_uri": f"gs://{BUCKET}/runs"}


@pytest.fixture
async def damaged(env: CloudEnv, client: TPUClient) -> CloudEnv:
    """A READY TPU without a lease, whose record was overwritten by hand."""
    root = store_root(env.grant)
    runs, ledger = RunStore(env.storage, root), LedgerStore(env.storage, root)
    record = runs.acquire(KEY, ZONE, now() + dt.timedelta(hours=1))
    await until_ready(client, await env.provisioner(client, env.order(), record).ensure(), poll_policy())
    runs.release(KEY)
    (name,) = ledger.names("ledger/incarnations/")
    env.storage.write_json(f"gs://{BUCKET}/{name}", {"event": "opened", "version": 1})
    return env


CONTEXT = context()


def test_teardown_of_the_run_fails_after_its_delete(damaged: CloudEnv) -> None:
    """The teardown fails because of its own run's record, after the TPU was asked to go."""
    with pytest.raises(LedgerError, match=r"the ledger event .* is damaged"):
        CloudTPUDeleteOperator(task_id="task", conf=CONF, poll_interval=0.1).execute(CONTEXT)
    assert eventually(damaged.nodes, lambda nodes: nodes == {}) == {}


def test_reaper_deletes_and_names_the_record(damaged: CloudEnv) -> None:
    """The reaper deletes a TPU without a lease whatever its record is like, and ends well: others need its round."""
    done = CloudTPUReaperOperator(task_id="task").execute(CONTEXT)
    assert done["unknown"] == damaged.ledger.names("ledger/incarnations/")
    assert eventually(damaged.nodes, lambda nodes: nodes == {}) == {}
