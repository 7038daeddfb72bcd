"""A record that cannot be read: the TPU is deleted all the same, and the damage is reported."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import cast

import pytest
from airflow.sdk import Context

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.errors import LedgerError
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.operators.reaper import CloudTPUReaperOperator
from airflow_tpu.operators.tpu import CloudTPUDeleteOperator
from airflow_tpu.stores.grants import store_root
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.runs import RunStore
from localcloud.testing import eventually
from tests.airflow_tpu.site import BUCKET, KEY, ZONE, Site, now, pace

CONF = {"script": "hello.py", "accelerator_type": "v2-8", "zone": ZONE, "artifacts_uri": f"gs://{BUCKET}/runs"}


@pytest.fixture
async def damaged(site: Site, client: TPUClient) -> Site:
    """A READY TPU without a lease, whose record was overwritten by hand."""
    root = store_root(site.grant)
    runs, ledger = RunStore(site.storage, root), LedgerStore(site.storage, root)
    record = runs.acquire(KEY, ZONE, now() + dt.timedelta(hours=1))
    await until_ready(client, await site.provisioner(client, site.order(), record).ensure(), pace())
    runs.release(KEY)
    (name,) = ledger.names("ledger/incarnations/")
    site.storage.write_json(f"gs://{BUCKET}/{name}", {"event": "opened", "version": 1})
    return site


@pytest.mark.parametrize("operator", [CloudTPUDeleteOperator, CloudTPUReaperOperator], ids=["teardown", "reaper"])
def test_no_delete_depends_on_a_record(damaged: Site, operator: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teardown and reaper fail because of the record, after the TPU was asked to go."""
    instance = SimpleNamespace(dag_id=KEY.dag_id, run_id=KEY.run_id, map_index=-1)
    conf = {} if operator is CloudTPUReaperOperator else {"conf": CONF, "poll_interval": 0.1}
    with pytest.raises(LedgerError, match=r"the ledger event .* is damaged"):
        operator(task_id="task", **conf).execute(cast(Context, {"ti": instance}))
    assert eventually(damaged.nodes, lambda nodes: nodes == {}) == {}
