# SPDX-License-Identifier: Apache-2.0
"""The verbs that talk to the cloud: usage reads the ledger, catalogue check asks the zones."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_tpu.cli.main import main
from airflow_tpu.core.ledger.events import Closed, EndReason, Opened
from airflow_tpu.core.ledger.month_archive import ARCHIVE_FORM, archive_path
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import Tier
from airflow_tpu.stores.ledger import LedgerStore
from tests.airflow_tpu.cloud_env import ROOT, CloudEnv
from tests.airflow_tpu.identities import AIRFLOW

FIRST = dt.datetime(2026, 9, 30, 23, 0, tzinfo=dt.UTC)
RUNS = [
    RunKey(AIRFLOW, "tpu_train", "manual__1"),
    RunKey(AIRFLOW, "tpu_train", "manual__2"),
    RunKey(AIRFLOW, "nightly", "scheduled__1"),
]


@pytest.fixture
def ledger(env: CloudEnv) -> LedgerStore:
    """Three runs of an hour each, an hour apart, the second one paid; all of them over."""
    store = env.ledger
    for number, key in enumerate(RUNS):
        begin = FIRST + dt.timedelta(hours=number)
        covered = None if number == 1 else "5 on-demand v2-8 devices in us-central1-f"
        place = ("local-project", "us-central1-f", "v2-8", 4, Tier.ON_DEMAND, "node", 1)
        event = Opened(key.node_id(1), key.digest, key.dag_id, key.run_id, *place, covered, "=1+1, why", begin)
        store.open(event)
        store.close(event, Closed(key.node_id(1), begin, begin + dt.timedelta(hours=1), EndReason.FINISHED))
    return store


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ([], RUNS),
        (["--dag", "tpu_train"], RUNS[:2]),
        (["--run", "manual__2"], RUNS[1:2]),
        (["--run", RUNS[2].name], RUNS[2:]),
        (["--run", RUNS[0].node_id(1)], RUNS[:1]),
        (["--from", "2026-10-01"], RUNS[1:]),
        (["--to", "2026-09-30"], RUNS[:1]),
        (["--from", "2026-10-01", "--to", "2026-10-01", "--dag", "nightly"], RUNS[2:]),
        (["--dag", "unknown"], []),
    ],
    ids=lambda value: " ".join(map(str, value)) if value and isinstance(value[0], str) else "",
)
def test_usage_of_a_part(
    ledger: LedgerStore, options: list[str], runs: list[RunKey], capsys: pytest.CaptureFixture[str]
) -> None:
    """Run, DAG and days choose incarnations; an incarnation belongs to the day it was asked for."""
    assert main(["usage", "--json", *options]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {row["node_id"] for row in summary["incarnations"]} == {key.node_id(1) for key in runs}
    total = summary["covered"]["chip_hours"] + summary["not_covered"]["chip_hours"]
    assert total == 4 * len(runs)


def test_usage_as_text_and_csv(ledger: LedgerStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report goes to the terminal, the exact figures to the file, and what is unknown is empty."""
    path = tmp_path / "usage.csv"
    assert main(["usage", "--csv", str(path)]) == 0
    assert "NOT FREE" in capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    first, paid = rows[0], rows[1]
    assert (first["node_id"], first["chip_hours"], first["covered"]) == (RUNS[0].node_id(1), "4", "true")
    assert (first["usd_per_chip_hour"], first["list_value_usd"]) == ("1.125", "4.5")
    assert (first["begins_at"], first["artifact_bytes"]) == ("2026-09-30T23:00:00+00:00", "0")
    assert (paid["allowance"], paid["covered"], paid["paid_reason"]) == ("", "false", "=1+1, why")


@pytest.mark.parametrize("options", [[], ["--run", "manual__2"], ["--from", "2026-10-01", "--to", "2026-10-01"]])
def test_a_part_is_no_dearer_than_nothing_new(env: CloudEnv, ledger: LedgerStore, options: list[str]) -> None:
    """Once the ledger was read, any part of it costs one listing and a read for each month."""
    assert main(["usage"]) == 0
    before = requests(env)
    assert main(["usage", "--json", *options]) == 0
    assert requests(env) - before == 3


def test_a_month_is_read_by_the_listing_of_what_is_kept(env: CloudEnv, ledger: LedgerStore, tmp_path: Path) -> None:
    """The report of a month asks for the kept and the removed objects, and reads two months: nothing else."""
    assert main(["usage"]) == 0
    before = requests(env)
    assert main(["usage", "--month", "2026-10", "--output", str(tmp_path)]) == 0
    assert requests(env) - before == 4


def test_usage_is_verified_by_a_full_fold(
    env: CloudEnv, ledger: LedgerStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """``verify`` reads every event from its own object: exit 0 if the months tell the same, else 1 with the names."""
    assert main(["usage", "verify"]) == 0
    assert "as in its own object" in capsys.readouterr().out
    uri = f"{ROOT}/{archive_path('2026-09')}"
    stored = env.storage.read_gzip(uri)
    assert stored is not None
    archive = ARCHIVE_FORM.from_json(stored.data)
    wrong = replace(archive, closed=(replace(archive.closed[0], training_seconds=7.0),))
    env.storage.write_gzip(uri, ARCHIVE_FORM.to_json(wrong), stored.generation)
    assert main(["usage", "verify"]) == 1
    assert capsys.readouterr().out.startswith(f"{RUNS[0].node_id(1)}: the object of its month")
    assert main(["usage", "verify"]) == 0


def requests(env: CloudEnv) -> int:
    """Requests for objects so far."""
    found = env.cloud.call(env.cloud.cloud.storage.stats)["requests"]
    return sum(number for name, number in found.items() if name.startswith("objects."))


def test_missing_connection_is_said(env: CloudEnv, capsys: pytest.CaptureFixture[str]) -> None:
    """A connection that does not exist is an error in a sentence."""
    assert main(["usage", "--gcp-conn-id", "no_such_connection"]) == 1
    assert "no_such_connection" in capsys.readouterr().err


def test_catalogue_check_is_silent_when_all_is_well(env: CloudEnv, capsys: pytest.CaptureFixture[str]) -> None:
    """The local cloud offers what the catalogue says, in every zone that is asked."""
    assert main(["catalogue", "check"]) == 0
    assert "0 difference(s)" in capsys.readouterr().out


def test_catalogue_check_warns(env: CloudEnv, capsys: pytest.CaptureFixture[str]) -> None:
    """A zone that does not exist is a warning, and the next zone is asked all the same."""
    assert main(["catalogue", "check", "--zone", "us-nowhere1-x", "--zone", "us-central1-f"]) == 1
    printed = capsys.readouterr().out
    assert "us-nowhere1-x did not answer" in printed
    assert "2 zone(s) asked, 1 difference(s)" in printed
