"""``usage``: what the ledger adds up to."""

from __future__ import annotations

import argparse
import datetime as dt
import json
from pathlib import Path

from airflow_tpu.cli.cloud import CONNECTION, reached
from airflow_tpu.cli.verbs import DONE, Verb, complain, option, say
from airflow_tpu.core.report import text_report
from airflow_tpu.core.selection import Selection
from airflow_tpu.core.summary import json_summary
from airflow_tpu.core.usage import fold
from airflow_tpu.core.usage_csv import csv_text


def usage(args: argparse.Namespace) -> int:
    """Read the ledger, fold the wanted part, print it."""
    from airflow_tpu.hooks.grant import load_catalogue, load_grant, store_root
    from airflow_tpu.hooks.ledger import LedgerStore

    grant = load_grant(args.grant)
    with reached():
        from airflow_tpu.hooks.artifacts import ArtifactsHook

        events = LedgerStore(ArtifactsHook(args.gcp_conn_id), store_root(grant)).events()
    wanted = Selection(args.run, args.dag, args.begin, args.end)
    found = fold(wanted.of(events), load_catalogue(), dt.datetime.now(dt.UTC))
    if args.csv:
        Path(args.csv).write_text(csv_text(found), encoding="utf-8", newline="")
        complain(f"Written: {args.csv}, {len(found.rows)} incarnation(s)")
    say(json.dumps(json_summary(found, grant), indent=2) if args.json else text_report(found, grant))
    return DONE


VERB = Verb(
    "usage",
    "chip-hours, list value not paid, and what is not free, from the ledger",
    (
        option("--run", default="", help="name or run id of a DAG run, or the id of one node"),
        option("--dag", default="", metavar="ID", help="id of a DAG"),
        option("--from", dest="begin", type=dt.date.fromisoformat, metavar="DAY", help="first UTC day, 2026-09-01"),
        option("--to", dest="end", type=dt.date.fromisoformat, metavar="DAY", help="last UTC day, 2026-09-30"),
        option("--csv", metavar="FILE", help="also write one line per incarnation to this file"),
        option("--json", action="store_true", help="print JSON"),
        option("--grant", default="", metavar="NAME", help="file in include/grants (default: [airflow_tpu] grant)"),
        CONNECTION,
    ),
    usage,
)
