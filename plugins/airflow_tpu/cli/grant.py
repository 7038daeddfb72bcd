# SPDX-License-Identifier: Apache-2.0
"""``grant import``, ``grant show`` and ``grant check``."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from pathlib import Path

from airflow_tpu import settings
from airflow_tpu.cli.verbs import DONE, REFUSED, Group, Verb, complain, confirmed, option, say
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.letter.grant_file import Facts, grant_of, grant_text
from airflow_tpu.core.letter.letter import Letter, read_letter
from airflow_tpu.core.report.table import table
from airflow_tpu.core.request.type_and_zone import known_type
from airflow_tpu.core.tpu.spec import Tier, TPUSpec
from airflow_tpu.errors import ConfigError, Fault

STDIN = "-"
_MOST_HOURS = 100_000


def import_letter(args: argparse.Namespace) -> int:
    """Read a letter, show what was understood, write the grant file after a yes."""
    from airflow_tpu.stores.grants import load_catalogue

    path = Path(args.output) if args.output else _default_path()
    if args.letter == STDIN and not args.yes:
        complain("The letter comes from standard input, so it cannot answer the question: add --yes, or name a file.")
        return REFUSED
    if path.exists() and not args.force:
        complain(f"{path} exists; --force replaces it, --output writes another file.")
        return REFUSED
    generations = load_catalogue().generations
    letter = read_letter(_pasted(args.letter), generations)
    facts = Facts(args.project_id, args.project_number, args.start, args.bucket, args.days, args.timezone)
    grant = grant_of(letter, facts, generations)
    _show(grant)
    _show_comments(letter)
    if not (args.yes or confirmed(f"Write {path}?")):
        complain("Nothing was written.")
        return REFUSED
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if args.force else "x", encoding="utf-8") as file:
        file.write(grant_text(grant, letter))
    say(f"Written: {path}")
    return DONE


def _default_path() -> Path:
    """Where Airflow looks for it; beside the example if Airflow reads the grant from somewhere else."""
    if settings.include_is_installed():
        problem = "is needed: this Airflow has no project yet, and an installed package is no place for a grant"
        raise ConfigError([Fault("--output", None, problem, ("a file", "airflow-tpu init DIR makes a project"))])
    name = settings.grant_name()
    elsewhere = name.startswith(("gs://", "variable:"))
    return settings.include_dir() / "grants" / (settings.DEFAULT_GRANT if elsewhere else name)


def show(args: argparse.Namespace) -> int:
    """Print the grant file as it is understood."""
    from airflow_tpu.stores.grants import load_grant

    _show(load_grant(args.grant))
    return DONE


def check(args: argparse.Namespace) -> int:
    """Check offline whether the grant covers a TPU."""
    from airflow_tpu.stores.grants import load_catalogue, load_grant

    grant, catalogue, now = load_grant(args.grant), load_catalogue(), dt.datetime.now(dt.UTC)
    kind = known_type(args.accelerator_type, catalogue)
    runtime = args.runtime_version or kind.default_runtime
    spec = TPUSpec(grant.project_id, args.zone, kind.name, runtime, Tier(args.tier), internal_ips=args.internal_ips)
    price = catalogue.price(spec.accelerator_type, spec.zone, spec.tier)
    request = Request(spec, kind, now + dt.timedelta(hours=args.hours), price=price)
    say(str(authorize(grant, request, Inventory(), now)))
    say("Not checked: what is alive in the project now, and where the buckets are.")
    return DONE


def _hours(text: str) -> float:
    hours = float(text)
    if not 0 < hours <= _MOST_HOURS:  # neither NaN nor infinity is
        raise ValueError(text)
    return hours


def _pasted(name: str) -> str:
    if name == STDIN:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return Path(name).read_text(encoding="utf-8-sig", errors="replace")


def _show(grant: Grant) -> None:
    left = grant.days_left(dt.datetime.now(dt.UTC))
    term = f"{grant.days} days from {grant.start:%Y-%m-%d %H:%M} {grant.timezone or '(no timezone)'}"
    say(f"project  {grant.project_id}, number {grant.project_number}")
    say(f"term     {term}, until {grant.ends_at:%Y-%m-%d %H:%M} UTC: {f'{left:.1f} days left' if left else 'ENDED'}")
    if grant.doubt:
        say(f"         covered from {grant.begins_at:%Y-%m-%d %H:%M} UTC: the file leaves open when exactly it starts")
    say(f"bucket   gs://{grant.bucket}/{grant.prefix}")
    rows = [
        (str(one.count), one.tier, one.accelerator_type or one.generation, one.unit, one.zone)
        for one in grant.allowances
    ]
    for line in table([("count", "tier", "TPU", "unit", "zone"), *rows], right=(0,)):
        say(line)


def _show_comments(letter: Letter) -> None:
    for unparsed in letter.unparsed:
        say(f"NOT UNDERSTOOD, add it to the file by hand if it is a row: {unparsed}")
    for note in letter.notes:
        say(f"Note: {note}")
    say("Compare every row with the letter: what is not a row here is billed.")


_NAME = option("--grant", default="", metavar="NAME", help="file in include/grants (default: [airflow_tpu] grant)")

GROUP = Group(
    "grant",
    "what the letter of the TPU Research Cloud allows",
    (
        Verb(
            "import",
            "write the grant file from the pasted text of a letter",
            (
                option(
                    "letter", metavar="LETTER", help="text or HTML file with the whole letter, - for standard input"
                ),
                option("--project-id", required=True, metavar="ID", help="the project, the name with letters"),
                option("--project-number", required=True, metavar="N", help="the number that was sent in for it"),
                option(
                    "--start", required=True, metavar="DATE", help="day of the letter, 2026-09-03 (or with an hour)"
                ),
                option("--bucket", required=True, help="bucket of ledger, leases and artifacts, without gs://"),
                option("--days", type=int, help="length of the term (default: what the letter says)"),
                option(
                    "--timezone",
                    default="",
                    metavar="TZ",
                    help="in which the start is meant (default: only hours that are covered in every timezone count)",
                ),
                option("--output", metavar="FILE", help="file to write (default: the grant that Airflow uses)"),
                option("--yes", action="store_true", help="write without asking"),
                option("--force", action="store_true", help="replace a file that exists"),
            ),
            import_letter,
        ),
        Verb("show", "print the grant as it is understood", (_NAME,), show),
        Verb(
            "check",
            "say whether the grant covers a TPU, offline",
            (
                option("--accelerator-type", required=True, metavar="TYPE", help="such as v2-8 or v5litepod-8"),
                option("--zone", required=True),
                option("--tier", choices=[str(tier) for tier in Tier], default=str(Tier.SPOT), help="default: spot"),
                option("--runtime-version", default="", metavar="NAME", help="default: the type's own with TensorFlow"),
                option("--internal-ips", action="store_true", help="no external address on the workers"),
                option("--hours", type=_hours, default=24.0, help="how long it will live at most (default: 24)"),
                _NAME,
            ),
            check,
        ),
    ),
)
