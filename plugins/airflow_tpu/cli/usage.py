# SPDX-License-Identifier: Apache-2.0
"""``usage``: report what the ledger adds up to, or reconcile it with Google's audit log."""

from __future__ import annotations

import argparse
import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_tpu.cli.cloud import CONNECTION, reached
from airflow_tpu.cli.verbs import DONE, REFUSED, Verb, complain, option, say
from airflow_tpu.core.ledger.audit_log import read_entries
from airflow_tpu.core.ledger.ledger_filter import LedgerFilter
from airflow_tpu.core.ledger.reconcile import TOLERANCE, reconcile
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.report.month import Month
from airflow_tpu.core.report.month_files import report_files
from airflow_tpu.core.report.parquet import parquet_bytes
from airflow_tpu.core.report.text import text_report
from airflow_tpu.core.report.usage_csv import csv_text
from airflow_tpu.core.report.usage_json import json_summary
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.ledger.events import Closed, Opened
    from airflow_tpu.stores.ledger import LedgerStore
    from airflow_tpu.stores.reports import ReportStore

RECONCILE, VERIFY = "reconcile", "verify"


def usage(args: argparse.Namespace) -> int:
    """Read the ledger; fold the wanted part and print it, or compare it with a log."""
    from airflow_tpu.stores.grants import load_grant

    wanted = _wanted(args)
    if args.action == RECONCILE:
        return _reconcile(args, wanted)
    if args.action == VERIFY:
        return _verify(args)
    grant = load_grant(args.grant)
    found = _month(args, grant) if args.month else _period(args, grant, wanted)
    if args.csv:
        _save(args.csv, csv_text(found).encode(), found)
    if args.parquet:
        _save(args.parquet, parquet_bytes(found), found)
    say(json.dumps(json_summary(found, grant), indent=2) if args.json else text_report(found, grant))
    return DONE


def _save(path: str, content: bytes, found: Usage) -> None:
    Path(path).write_bytes(content)
    complain(f"Written: {path}, {len(found.rows)} incarnation(s)")


def _wanted(args: argparse.Namespace) -> LedgerFilter:
    wanted = LedgerFilter(args.run, args.dag, args.begin, args.end)
    if not args.month:
        return wanted
    if wanted != LedgerFilter():
        raise ConfigError(
            [Fault("month", args.month, "is a whole month: --run, --dag, --from and --to do not go with it")]
        )
    month = Month.parse(args.month)
    return replace(wanted, begin=month.first, end=month.last)


def _period(args: argparse.Namespace, grant: Grant, wanted: LedgerFilter) -> Usage:
    from airflow_tpu.stores.grants import load_catalogue

    return fold(_events(args, grant), load_catalogue(), dt.datetime.now(dt.UTC), wanted=wanted)


def _month(args: argparse.Namespace, grant: Grant) -> Usage:
    """Fold a month, and write its report: to the bucket, beside the ledger, or to a folder."""
    from airflow_tpu.stores.grants import load_catalogue

    month = Month.parse(args.month)
    with reached():
        reports = _reports(args, grant)
        found = reports.usage(month, load_catalogue())
        written = _to_folder(Path(args.output), found, month) if args.output else reports.write(found, month)
    for place in written:
        complain(f"Written: {place}")
    return found


def _to_folder(folder: Path, found: Usage, month: Month) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file in report_files(found, month):
        path = folder / file.name
        path.write_bytes(file.content)
        written.append(str(path))
    return written


def _reports(args: argparse.Namespace, grant: Grant) -> ReportStore:
    from airflow_tpu.hooks.artifacts import ArtifactsHook
    from airflow_tpu.stores.grants import store_root
    from airflow_tpu.stores.reports import ReportStore

    return ReportStore(ArtifactsHook(args.gcp_conn_id), store_root(grant))


def _events(args: argparse.Namespace, grant: Grant) -> list[Opened | Closed]:
    with reached():
        return _ledger(args, grant).events()


def _ledger(args: argparse.Namespace, grant: Grant) -> LedgerStore:
    from airflow_tpu.stores.ledger import LedgerStore

    reports = _reports(args, grant)
    return LedgerStore(reports.hook, reports.root)


def _verify(args: argparse.Namespace) -> int:
    """Fold every event from its own object, beside the fold of the months."""
    from airflow_tpu.stores.grants import load_grant

    with reached():
        store = _ledger(args, load_grant(args.grant))
        differing = store.verify()
    for node_id in differing:
        say(f"{node_id}: the object of its month does not tell what its own objects tell")
    if differing:
        say(f"{len(differing)} incarnation(s) differ: the months were removed, and the next report writes them anew")
        return REFUSED
    say("every event is in its month as in its own object, or is new")
    return DONE


def _reconcile(args: argparse.Namespace, wanted: LedgerFilter) -> int:
    from airflow_tpu.stores.grants import load_grant

    if not args.audit:
        raise ConfigError([Fault("audit", "", "is missing: the file with the exported entries of the log")])
    entries = read_entries(Path(args.audit).read_text(encoding="utf-8"))
    events = _events(args, load_grant(args.grant))
    tolerance = TOLERANCE if args.tolerance is None else dt.timedelta(seconds=args.tolerance)
    differences = reconcile(events, entries, wanted, tolerance)
    for difference in differences:
        say(f"{difference}")
    compared = len({event.node_id for event in wanted.of(events)})
    say(f"{compared} incarnation(s) and {len(entries)} entries compared, {len(differences)} difference(s)")
    return REFUSED if differences else DONE


VERB = Verb(
    "usage",
    "chip-hours, list value not paid, and what is not free, from the ledger; or compare it with Google's audit log",
    (
        option("action", nargs="?", choices=("report", RECONCILE, VERIFY), default="report", help="default: report"),
        option("audit", nargs="?", metavar="AUDIT.json", help="exported Admin Activity entries, to reconcile with"),
        option("--run", default="", help="name or run id of a DAG run, or the id of one node"),
        option("--dag", default="", metavar="ID", help="id of a DAG"),
        option("--from", dest="begin", type=dt.date.fromisoformat, metavar="DAY", help="first UTC day, 2026-09-01"),
        option("--to", dest="end", type=dt.date.fromisoformat, metavar="DAY", help="last UTC day, 2026-09-30"),
        option("--month", default="", metavar="MONTH", help="2026-09; also write its report, beside the ledger"),
        option("--output", default="", metavar="FOLDER", help="write the report of the month there instead"),
        option("--csv", metavar="FILE", help="also write one line per incarnation to this file"),
        option("--parquet", metavar="FILE", help="the same as Parquet"),
        option("--json", action="store_true", help="print JSON"),
        option("--tolerance", type=float, metavar="SECONDS", help="reconcile: smaller differences are none (60)"),
        option("--grant", default="", metavar="NAME", help="file in include/grants (default: [airflow_tpu] grant)"),
        CONNECTION,
    ),
    usage,
)
