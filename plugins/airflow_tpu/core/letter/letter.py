# SPDX-License-Identifier: Apache-2.0
"""Read the pasted text of a letter of the TPU Research Cloud.

Letters have one line per row of the grant, in English whatever language is around it. Until 2024 a row counts devices
of one type, ``100 preemptible Cloud TPU v2-8 device(s) in zone us-central1-f``; since 2025 it counts chips of a
generation, ``64 spot Cloud TPU v6e chips in zone us-east1-d``. A row without a tier is on-demand, unless the letter
speaks of spot outside of its rows. What looks like a row and is not certain is handed back with the reason: a forgotten
row would be a TPU that its owner pays for, or never uses, and so would be one that was not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.allowance import Allowance
from airflow_tpu.core.letter.doubt import taken_back
from airflow_tpu.core.letter.mail import bodies
from airflow_tpu.core.letter.plain_text import plain_text
from airflow_tpu.core.letter.quoting import by_depth
from airflow_tpu.core.letter.rows import Rows, find_rows, row_shape
from airflow_tpu.core.letter.term import term
from airflow_tpu.core.letter.unparsed_rows import UnparsedRow, half_rows


@dataclass(frozen=True)
class Letter:
    """Rows and term that a letter states.

    :param allowances: its rows.
    :param days: length of the term, None when the letter states none or several.
    :param unparsed: what looks like a row and is not among the allowances.
    :param notes: how the letter was read, where it allows more than one reading.
    """

    allowances: tuple[Allowance, ...]
    days: int | None
    unparsed: tuple[UnparsedRow, ...] = ()
    notes: tuple[str, ...] = ()


def read_letter(pasted: str, generations: Generations) -> Letter:
    """Read a letter.

    :param generations: of the catalogue; a row of another one is handed back.
    :param pasted: its text as it came from the clipboard, plain or HTML, or the mail with its headers.
    """
    mails = by_depth((depth, plain_text(body)) for depth, body in bodies(pasted))
    outside = "\n".join(row_shape(generations).sub(" ", mail) for mail in mails)
    read = [_read(mail, outside, generations) for mail in mails]
    newest = next((number for number, rows in enumerate(read) if rows.good or rows.unparsed), 0)
    current, older = read[newest], read[newest + 1 :]
    certain, unparsed = current.good, current.unparsed
    if ended := taken_back("\n\n".join(mails[:newest]), to_end=True):
        certain = ()
        unparsed += tuple(UnparsedRow(str(row), f"has {ended!r} said of it above") for row in current.good)
    allowances, notes = _merged(certain)
    days, more = term("\n\n".join(mails[: newest + 1]))
    return Letter(tuple(allowances), days, (*unparsed, *_outdated(older, certain)), (*notes, *more))


def _read(mail: str, outside: str, generations: Generations) -> Rows:
    rows = find_rows(mail, outside, generations)
    return Rows(rows.good, (*rows.unparsed, *half_rows(rows.between, generations)), rows.between)


def _outdated(older: Iterable[Rows], current: Iterable[Allowance]) -> Iterator[UnparsedRow]:
    """Rows of the older mails below that the newest one does not repeat."""
    repeated = set(map(str, current))
    for rows in older:
        yield from rows.unparsed
        quoted = dict.fromkeys(map(str, rows.good))
        yield from (UnparsedRow(row, "stands in an older, quoted mail") for row in quoted if row not in repeated)


def _merged(rows: Iterable[Allowance]) -> tuple[list[Allowance], list[str]]:
    """Each pool once: a mail holds its text twice, as plain text and as HTML, and a thread quotes it again."""
    pools: dict[tuple[str, ...], list[Allowance]] = {}
    for row in rows:
        pools.setdefault((row.unit, row.tier, row.zone, row.generation, row.accelerator_type), []).append(row)
    merged = [min(same, key=lambda row: row.count) for same in pools.values()]
    return merged, [note for same in pools.values() for note in _repetition(same)]


def _repetition(same: list[Allowance]) -> Iterator[str]:
    counts = sorted({row.count for row in same})
    if len(counts) > 1:
        given = " and ".join(map(str, counts))
        yield f"'{same[0]}' is given with the counts {given}: {counts[0]} was taken, the one that is free in any case"
    elif len(same) > 1:
        yield f"'{same[0]}' is given {len(same)} times and was taken once"
