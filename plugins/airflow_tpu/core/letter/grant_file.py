# SPDX-License-Identifier: Apache-2.0
"""Write the text of a grant file from a letter and the facts that no letter states."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.grant import DEFAULT_PREFIX, Grant
from airflow_tpu.core.letter.letter import Letter
from airflow_tpu.errors import Fault, GrantError

_HEAD = """\
# The grant, as `airflow-tpu grant import` read it from its letter. Compare every row with the letter: what is not a
# row here is billed, and Google's console does not tell the two apart.
"""
_STORE = """\
# Ledger, leases, reservations and artifacts. The bucket is not free, and neither is traffic between regions.
"""


@dataclass(frozen=True)
class Facts:
    """Facts that a letter does not state.

    :param project_id: the project it was given to, the name with letters.
    :param project_number: the number that was sent in for it.
    :param start: date, or date and time, the term starts.
    :param bucket: bucket of ledger, leases and artifacts.
    :param days: length of the term; None takes the letter's.
    :param timezone: in which the start is meant, empty if that is not known.
    """

    project_id: str
    project_number: str
    start: str
    bucket: str
    days: int | None = None
    timezone: str = ""


def grant_of(letter: Letter, facts: Facts, generations: Generations) -> Grant:
    """The grant that a letter gives.

    :raises GrantError: with every fault.
    """
    days = facts.days if facts.days is not None else letter.days
    mapping: dict[str, Any] = {
        "project_id": facts.project_id,
        "project_number": facts.project_number,
        "start": facts.start,
        **({"timezone": facts.timezone} if facts.timezone else {}),
        **({"allowances": [row.to_json() for row in letter.allowances]} if letter.allowances else {}),
        **({"days": days} if days is not None else {}),
        "bucket": facts.bucket,
        "prefix": DEFAULT_PREFIX,
    }
    try:
        return Grant.parse(mapping, generations)
    except GrantError as error:
        missing = {"allowances", "days"} - mapping.keys()
        others = [fault for fault in error.faults if fault.field not in missing]
        subject = "the letter" if missing else error.subject
        raise GrantError([*_doubts(letter, days), *others], subject) from error


def _doubts(letter: Letter, days: int | None) -> list[Fault]:
    """Every reason for which a letter was not understood, and what is missing for that."""
    found = [Fault("letter", row.text, f"NOT UNDERSTOOD: {row.reason}") for row in letter.unparsed]
    if not letter.allowances:
        problem = "no row in it is certain" if found else "no row was found in it"
        advice = f"{problem}; paste the whole text of the mail, not a picture or a link"
        found.append(Fault("letter", "", advice, ("64 spot Cloud TPU v6e chips in zone us-east1-d",)))
    if days is None:
        found.append(Fault("days", None, f"is missing: {'; '.join(letter.notes)}", ("--days 90",)))
    return found


def grant_text(grant: Grant, letter: Letter) -> str:
    """The grant file, with a comment for each row that could not be parsed and each doubtful reading."""
    comments = [f"# NOT UNDERSTOOD, and so not free: {unparsed}" for unparsed in letter.unparsed]
    comments += [f"# Note: {note}" for note in letter.notes]
    rows = [
        f"  - {{{', '.join(f'{key}: {value}' for key, value in row.to_json().items())}}}" for row in grant.allowances
    ]
    project = _fields({"project_id": grant.project_id, "project_number": grant.project_number})
    store = _fields({"bucket": grant.bucket, "prefix": grant.prefix})
    lines = [
        *project,
        "",
        f"# The term counts from {grant.begins_at:%Y-%m-%d %H:%M} to {grant.ends_at:%Y-%m-%d %H:%M} UTC: without "
        "an hour in `start` the last",
        "# day counts as ended, and without a `timezone` only the hours count that are covered in every timezone.",
        f"start: {_start(grant)}",
        f"days: {grant.days}",
        *_fields({"timezone": grant.timezone} if grant.timezone else {}),
    ]
    return "\n".join([_HEAD, *lines, "", "allowances:", *rows, *comments, "", _STORE + "\n".join(store)]) + "\n"


def _fields(values: dict[str, str]) -> list[str]:
    # Quoted, because a bucket may be called 2026-01-01 or null; a JSON string is a YAML string.
    return [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def _start(grant: Grant) -> str:
    return json.dumps(grant.start_text) if "T" in grant.start_text else grant.start_text
