"""Teardown, reaper and deadline end TPUs without asking the grant: one that is over, and one that cannot be read."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from airflow.sdk import Context

from airflow_tpu.core.ledger import Closed
from airflow_tpu.deadlines import end_overdue
from airflow_tpu.errors import LeaseLost, LedgerError
from airflow_tpu.hooks.grant import load_grant, store_root
from airflow_tpu.hooks.lease import LeaseStore
from airflow_tpu.hooks.ledger import LedgerStore
from airflow_tpu.hooks.provision import Provisioner
from airflow_tpu.hooks.tpu_client import TPUClient
from airflow_tpu.hooks.waits import until_ready
from airflow_tpu.operators.reaper import CloudTPUReaperOperator
from airflow_tpu.operators.tpu import CloudTPUDeleteOperator
from localcloud.testing import eventually
from tests.hooks.site import BUCKET, INCLUDE, KEY, ZONE, Site, now, pace

SOON = dt.timedelta(hours=1)
CONTEXT = cast(Context, {"ti": SimpleNamespace(dag_id=KEY.dag_id, run_id=KEY.run_id, map_index=-1)})
ALERT = {"dag_run": {"dag_id": KEY.dag_id, "dag_run_id": KEY.run_id}}

Break = Callable[[], None]


@pytest.fixture
def stores(site: Site) -> tuple[LeaseStore, LedgerStore]:
    """Leases and ledger of the grant that the tasks load."""
    root = store_root(site.grant)
    return LeaseStore(site.storage, root), LedgerStore(site.storage, root)


@pytest.fixture
def end_grant(site: Site, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Let the term of the grant be over."""

    def end() -> None:
        text = (INCLUDE / "grants" / "local.yaml").read_text(encoding="utf-8")
        ended = "\n".join("start: 2020-01-01" if line.startswith("start:") else line for line in text.splitlines())
        site.storage.upload(bucket_name=BUCKET, object_name="grant.yaml", data=ended.replace("days: ", "days: 30 # "))
        monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", f"gs://{BUCKET}/grant.yaml")
        assert load_grant().ends_at < now()

    return end


@pytest.fixture
def lose_grant(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Name a grant file that is not there."""
    return lambda: monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "lost.yaml")


async def train(stores: tuple[LeaseStore, LedgerStore], site: Site, client: TPUClient, right: dt.timedelta) -> None:
    """A READY TPU of the run, with a lease and a label that end so long from now."""
    leases, ledger = stores
    lease = leases.acquire(KEY, ZONE, now() + SOON)
    target = await Provisioner(client, leases, ledger).ensure(site.order(), lease)
    view = (await until_ready(client, target, pace())).view
    leases.acquire(KEY, ZONE, now() + right)
    expires = str(int((now() + right).timestamp()))
    await client.relabel(view.name, {**view.labels, "airflow-tpu-expires": expires})


def delete() -> object:
    """Execute the teardown, waiting in the worker."""
    return CloudTPUDeleteOperator(task_id="delete", conf={}, deferrable=False, poll_interval=0.1).execute(CONTEXT)


def endings(ledger: LedgerStore) -> list[str]:
    """Nodes whose ledger record is closed."""
    return [event.node_id for event in ledger.events() if isinstance(event, Closed)]


async def test_the_teardown_works_after_the_grant(
    site: Site, client: TPUClient, stores: tuple[LeaseStore, LedgerStore], end_grant: Break
) -> None:
    """With the term over, the delete task deletes the TPU, closes its record and gives the lease back."""
    await train(stores, site, client, SOON)
    end_grant()
    await asyncio.to_thread(delete)
    assert site.nodes() == {}
    assert endings(stores[1]) == [KEY.node_id(1)]
    with pytest.raises(LeaseLost):
        stores[0].read(KEY)


async def test_the_reaper_works_after_the_grant(
    site: Site, client: TPUClient, stores: tuple[LeaseStore, LedgerStore], end_grant: Break
) -> None:
    """With the term over, the reaper deletes a TPU that nobody holds a lease on and closes its record."""
    await train(stores, site, client, SOON)
    stores[0].release(KEY)
    end_grant()
    await asyncio.to_thread(lambda: CloudTPUReaperOperator(task_id="reap").execute(CONTEXT))
    eventually(site.nodes, lambda nodes: nodes == {}, 90.0)
    assert endings(stores[1]) == [KEY.node_id(1)]


async def test_the_teardown_needs_no_grant_to_delete(
    site: Site, client: TPUClient, stores: tuple[LeaseStore, LedgerStore]
) -> None:
    """Without a grant file the TPU goes and the task fails; with the file back, a second try keeps the books."""
    await train(stores, site, client, SOON)
    with pytest.MonkeyPatch.context() as lost:
        lost.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "lost.yaml")
        with pytest.raises(
            LedgerError, match=r"is gone, but its ledger records .*\n.*lost\.yaml(.|\n)*clear this task"
        ):
            await asyncio.to_thread(delete)
    assert site.nodes() == {}
    assert endings(stores[1]) == []
    await asyncio.to_thread(delete)
    assert endings(stores[1]) == [KEY.node_id(1)]


@pytest.mark.parametrize(("right", "left"), [(-SOON, []), (SOON, [KEY.node_id(1)])], ids=["expired", "in its right"])
async def test_the_reaper_goes_by_the_labels_without_a_grant(
    site: Site,
    client: TPUClient,
    stores: tuple[LeaseStore, LedgerStore],
    lose_grant: Break,
    right: dt.timedelta,
    left: list[str],
) -> None:
    """Without a grant file the reaper deletes what has expired by its label, leaves the rest, and fails."""
    await train(stores, site, client, right)
    lose_grant()
    with pytest.raises(LedgerError, match=rf"{1 - len(left)} TPU\(s\) were deleted(.|\n)*lost\.yaml"):
        await asyncio.to_thread(lambda: CloudTPUReaperOperator(task_id="reap").execute(CONTEXT))
    eventually(lambda: sorted(site.nodes()), lambda nodes: nodes == left, 90.0)


@pytest.mark.parametrize(("right", "left"), [(-SOON, []), (SOON, [KEY.node_id(1)])], ids=["expired", "in its right"])
async def test_the_deadline_goes_by_the_labels_without_a_grant(
    site: Site,
    client: TPUClient,
    stores: tuple[LeaseStore, LedgerStore],
    lose_grant: Break,
    right: dt.timedelta,
    left: list[str],
) -> None:
    """Without a grant file the alert ends a TPU whose label has expired, and no other."""
    await train(stores, site, client, right)
    lose_grant()
    assert "has passed the expiry on its label" in await end_overdue("google_cloud_default", ALERT)
    eventually(lambda: sorted(site.nodes()), lambda nodes: nodes == left, 90.0)
