# SPDX-License-Identifier: Apache-2.0
"""What leaves the ledger: the month's files in the bucket, the asset event, the comparison with the audit log."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_tpu.cli.main import main
from airflow_tpu.clients.tpu_api import TPUClient
from airflow_tpu.core.ledger.events import closed_path
from airflow_tpu.core.report.usage_json import LIMIT
from airflow_tpu.lifecycle.creating.create import Provisioner
from airflow_tpu.lifecycle.ends.records import close_incarnations
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.ready import until_ready
from airflow_tpu.operators.ledger import USAGE_ASSET, CloudTPUMonthlyReportOperator
from airflow_tpu.operators.tpu import CloudTPUDeleteOperator
from airflow_tpu.stores.ledger import LedgerStore
from localcloud.testing import tpu_client
from localcloud.tpu_api.audit import entries
from localcloud.virtual_cloud import spot_node
from tests.airflow_tpu.cloud_env import BUCKET, FORM, KEY, CloudEnv, context, poll_policy, request_delete
from tests.airflow_tpu.core.made_ledger import ASKED, closed, opened

PARENT = "projects/local-project/locations/europe-west4-b"


@pytest.fixture
def ledger(env: CloudEnv) -> LedgerStore:
    """One incarnation of November, one of December."""
    store = env.ledger
    for number, asked in enumerate((ASKED, ASKED + dt.timedelta(days=7)), start=1):
        event = opened(KEY.node_id(number), run=KEY.digest, dag_id=KEY.dag_id, run_id=KEY.run_id, requested_at=asked)
        store.open(event)
        store.close(event, closed(event.node_id, ready_at=asked, artifact_bytes=7))
    return store


def content(env: CloudEnv, name: str) -> bytes:
    """An object of the reports folder."""
    found: bytes = env.storage.download(BUCKET, f"{env.grant.prefix}/reports/{name}")
    return found


def test_a_month_is_written_to_the_bucket(env: CloudEnv, ledger: LedgerStore) -> None:
    """Without a month it is the one before the DAG run: report, chart and table lie beside the ledger."""
    dates = {"logical_date": None, "data_interval_start": None, "data_interval_end": None}
    run = SimpleNamespace(run_after=dt.datetime(2026, 12, 1, 6, tzinfo=dt.UTC), **dates)
    answer = CloudTPUMonthlyReportOperator(task_id="report").execute(context(dag_run=run))
    assert answer["written"] == [f"{ledger.root}/reports/2026-11.{ending}" for ending in ("svg", "parquet", "md")]
    assert answer["summary"]["covered"]["chip_hours"] == 6
    text = content(env, "2026-11.md").decode()
    assert "![Chip-hours per day, stacked by DAG](2026-11.svg)" in text
    assert "| kept in the bucket now |" in text
    assert content(env, "2026-11.svg").startswith(b"<svg ")
    table = pq.read_table(io.BytesIO(content(env, "2026-11.parquet")))
    assert table.column("node_id").to_pylist() == [KEY.node_id(1)]


def test_a_month_by_its_name(
    env: CloudEnv, ledger: LedgerStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line writes the same files, to the bucket or to a folder, and a table of any period."""
    folder, table, sheet = tmp_path / "out", tmp_path / "all.parquet", tmp_path / "all.csv"
    assert main(["usage", "--month", "2026-12", "--output", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["2026-12.md", "2026-12.parquet", "2026-12.svg"]
    assert main(["usage", "--month", "2026-12"]) == 0
    assert f"Written: {ledger.root}/reports/2026-12.md" in capsys.readouterr().err
    assert content(env, "2026-12.svg") == (folder / "2026-12.svg").read_bytes()
    assert main(["usage", "--parquet", str(table), "--csv", str(sheet)]) == 0
    rows = list(csv.DictReader(sheet.open(encoding="utf-8", newline="")))
    assert [row["node_id"] for row in rows] == pq.read_table(table).column("node_id").to_pylist()
    assert len(rows) == 2


@pytest.mark.parametrize("options", [["--month", "2026-13"], ["--month", "2026-11", "--dag", "x"]])
def test_what_is_no_month_writes_nothing(
    env: CloudEnv, ledger: LedgerStore, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong month, or a part of one, is refused in words before anything is read or written."""
    assert main(["usage", *options]) == 1
    assert "month" in capsys.readouterr().err
    assert env.storage.listing(f"{ledger.root}/reports/") == []


async def live(env: CloudEnv, client: TPUClient, store: LedgerStore) -> None:
    """One life of a TPU, from the create to the delete, in the ledger and in the cloud."""
    target = await Provisioner(client, replace(env.stores, ledger=store), env.order(), env.lease()).ensure()
    await until_ready(client, target, poll_policy())
    since = dt.datetime.now(dt.UTC)
    record = env.runs.update(env.runs.read(KEY), lambda found: found.with_life(KEY.node_id(1), ready_at=since))
    endings = await request_delete(client, KEY)
    await until_gone(client, KEY, poll_policy())
    close_incarnations(store, record, KEY, endings)


def export(env: CloudEnv, path: Path) -> Path:
    """Write the local cloud's log of creates and deletes as gcloud would."""
    path.write_text(json.dumps(entries(env.cloud.cloud.config.state_dir)), encoding="utf-8")
    return path


async def test_ledger_and_audit_log_tell_the_same(
    env: CloudEnv, client: TPUClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real life has no difference; a colleague's node and a lost record are differences, and exit 1."""
    store = env.ledger
    await live(env, client, store)
    log = export(env, tmp_path / "audit.json")
    assert main(["usage", "reconcile", str(log)]) == 0
    assert "1 incarnation(s) and 4 entries compared, 0 difference(s)" in capsys.readouterr().out
    tpu_client(env.cloud.endpoints).create_node(parent=PARENT, node_id="annas-notebook", node=spot_node())
    env.storage.remove(f"{store.root}/{closed_path(KEY.node_id(1))}")
    assert main(["usage", "reconcile", str(export(env, log))]) == 1
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.startswith("annas-notebook: created by anonymous@localcloud.invalid, not in the ledger, not deleted")
    assert second.startswith(f"{KEY.node_id(1)}: deleted, and without an end in the ledger")
    assert total.endswith("2 difference(s)")


def test_reconcile_wants_a_file(env: CloudEnv, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file, one that is not there, one that is no log: each is said in words."""
    path = tmp_path / "audit.json"
    path.write_text("no log", encoding="utf-8")
    for words, said in (([], "is missing"), (["nowhere.json"], "nowhere.json"), ([str(path)], "JSON")):
        assert main(["usage", "reconcile", *words]) == 1
        assert said in capsys.readouterr().err


def test_the_teardown_tells_what_was_used(env: CloudEnv) -> None:
    """Its event of the asset has the run's usage, below the limit of an XCom; without the alias there is none."""
    store = env.ledger
    store.open(opened(KEY.node_id(1), run=KEY.digest, dag_id=KEY.dag_id, run_id=KEY.run_id))
    alias = AssetAlias(USAGE_ASSET)

    def tear_down(outlets: list[Any]) -> OutletEventAccessors:
        events = OutletEventAccessors()
        task = CloudTPUDeleteOperator(task_id="delete", conf=FORM, outlets=outlets, poll_interval=0.1)
        task.execute(context(outlet_events=events))
        return events

    (event,) = tear_down([alias])[alias].asset_alias_events
    assert (event.dest_asset_key.name, event.dest_asset_key.uri) == (USAGE_ASSET, Asset(USAGE_ASSET).uri)
    extra: Any = event.extra
    assert extra["incarnations"][0]["node_id"] == KEY.node_id(1)
    assert len(json.dumps(event.extra)) < LIMIT
    assert len(tear_down([])) == 0
