# SPDX-License-Identifier: Apache-2.0
"""Teardown, reaper and deadline end TPUs without asking the grant, which may be over, and without its books."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable

import pytest

from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.consequences import DELETE_PENDING
from airflow_tpu.core.ledger.events import Closed
from airflow_tpu.deadlines import end_overdue
from airflow_tpu.errors import AccessDenied, LeaseLost, LedgerError
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.operators.reaper import CloudTPUReaperOperator
from airflow_tpu.operators.tpu import CloudTPUDeleteOperator
from airflow_tpu.stores.grants import load_grant
from airflow_tpu.stores.ledger import LedgerStore
from localcloud.testing import eventually
from tests.airflow_tpu.cloud_env import BUCKET, INCLUDE, KEY, ZONE, CloudEnv, context, now, poll_policy

SOON = dt.timedelta(hours=1)
ALERT = {"dag_run": {"dag_id": KEY.dag_id, "dag_run_id": KEY.run_id}}

BY_LABEL = pytest.mark.parametrize(
    ("right", "left"), [(-SOON, []), (SOON, [KEY.node_id(1)])], ids=["expired", "in its right"]
)

Break = Callable[[], object]


@pytest.fixture
def end_grant(env: CloudEnv, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Let the term of the grant be over."""

    def end() -> None:
        text = (INCLUDE / "grants" / "local.yaml").read_text(encoding="utf-8")
        ended = "\n".join("start: 2020-01-01" if line.startswith("start:") else line for line in text.splitlines())
        env.storage.upload(bucket_name=BUCKET, object_name="grant.yaml", data=ended.replace("days: ", "days: 30 # "))
        monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", f"gs://{BUCKET}/grant.yaml")
        assert load_grant().ends_at < now()

    return end


@pytest.fixture(params=["grant", "bucket"])
def lose_books(request: pytest.FixtureRequest, env: CloudEnv, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Name a grant file that is not there, or let the bucket refuse everything: no lease can be read any more."""
    if request.param == "grant":
        return lambda: monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "lost.yaml")
    return lambda: env.cloud.cloud.faults.add({"point": "gcs.request", "times": 1000, "params": {"action": "403"}})


async def train(env: CloudEnv, client: TPUClient, right: dt.timedelta) -> None:
    """A READY TPU of the run, with a lease and a label that end so long from now."""
    view = (await until_ready(client, await env.ensure(client), poll_policy())).view
    env.runs.acquire(KEY, ZONE, now() + right)
    expires = str(int((now() + right).timestamp()))
    await client.relabel(view.name, {**view.labels, "airflow-tpu-expires": expires})


def delete() -> object:
    """Execute the teardown, waiting in the worker."""
    return CloudTPUDeleteOperator(task_id="delete", conf={}, deferrable=False, poll_interval=0.1).execute(context())


def endings(ledger: LedgerStore) -> list[str]:
    """Nodes whose ledger record is closed."""
    return [event.node_id for event in ledger.events() if isinstance(event, Closed)]


async def test_the_teardown_works_after_the_grant(env: CloudEnv, client: TPUClient, end_grant: Break) -> None:
    """With the term over, the delete task deletes the TPU, closes its record and gives the lease back."""
    await train(env, client, SOON)
    end_grant()
    await asyncio.to_thread(delete)
    assert env.nodes() == {}
    assert endings(env.ledger) == [KEY.node_id(1)]
    with pytest.raises(LeaseLost):
        env.runs.read(KEY)


async def test_the_reaper_works_after_the_grant(env: CloudEnv, client: TPUClient, end_grant: Break) -> None:
    """With the term over, the reaper deletes a TPU without a lease and closes its record."""
    await train(env, client, SOON)
    env.runs.release(KEY)
    end_grant()
    await asyncio.to_thread(lambda: CloudTPUReaperOperator(task_id="reap").execute(context()))
    eventually(env.nodes, lambda nodes: nodes == {})
    assert endings(env.ledger) == [KEY.node_id(1)]


async def test_the_teardown_needs_no_grant_to_delete(env: CloudEnv, client: TPUClient) -> None:
    """Without a grant file the TPU goes and the task fails; with the file back, a second try keeps the books."""
    await train(env, client, SOON)
    with pytest.MonkeyPatch.context() as lost:
        lost.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "lost.yaml")
        with pytest.raises(
            LedgerError,
            match=r"ledger records and the lease .* open.*\n.*lost\.yaml(.|\n)*clear this task.*; the TPU is deleted",
        ):
            await asyncio.to_thread(delete)
    assert env.nodes() == {}
    assert endings(env.ledger) == []
    await asyncio.to_thread(delete)
    assert endings(env.ledger) == [KEY.node_id(1)]


async def test_a_teardown_that_cannot_delete_says_what_does(env: CloudEnv, client: TPUClient) -> None:
    """While the API refuses the lists the TPU may be alive, and the message says so."""
    await train(env, client, SOON)
    env.cloud.add_fault("tpu.call", {"method": "ListNodes"}, action="error", code=7, message="no role")
    with pytest.raises(AccessDenied, match=f"; {DELETE_PENDING}"):
        await asyncio.to_thread(delete)
    assert list(env.nodes()) == [KEY.node_id(1)]


@BY_LABEL
async def test_the_reaper_goes_by_the_labels_without_a_lease(
    env: CloudEnv, client: TPUClient, lose_books: Break, right: dt.timedelta, left: list[str]
) -> None:
    """Where leases cannot be read the reaper deletes what has expired by its label, leaves the rest, and fails."""
    await train(env, client, right)
    lose_books()
    with pytest.raises(LedgerError, match=rf"{1 - len(left)} TPU\(s\) were deleted(.|\n)*(lost\.yaml|403)"):
        await asyncio.to_thread(lambda: CloudTPUReaperOperator(task_id="reap").execute(context()))
    eventually(lambda: sorted(env.nodes()), lambda nodes: nodes == left)


@BY_LABEL
async def test_the_deadline_goes_by_the_labels_without_a_lease(
    env: CloudEnv, client: TPUClient, lose_books: Break, right: dt.timedelta, left: list[str]
) -> None:
    """Where the lease cannot be read the alert ends a TPU whose label has expired, and no other."""
    await train(env, client, right)
    lose_books()
    assert "has passed the expiry on its label" in await end_overdue("google_cloud_default", ALERT)
    eventually(lambda: sorted(env.nodes()), lambda nodes: nodes == left)
