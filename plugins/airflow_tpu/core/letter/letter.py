"""Read the pasted text of a letter of the TPU Research Cloud.

Letters have one line per row of the grant, in English whatever language is around it. Until 2024 a row counts devices
of one type, ``100 preemptible Cloud TPU v2-8 device(s) in zone us-central1-f``; since 2025 it counts chips of a
generation, ``64 spot Cloud TPU v6e chips in zone us-east1-d``. A row without a tier is on-demand. What looks like a row
and cannot be read is handed back with the reason: a forgotten row would be a TPU that somebody pays for, or never uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.allowance import Allowance, parse_allowances
from airflow_tpu.core.letter.plain_text import plain_text
from airflow_tpu.core.letter.term import term
from airflow_tpu.core.letter.unparsed_rows import UnparsedRow, generation_shape, half_rows

# ASCII throughout: languages without spaces glue their words to a row, 총64 spot ... in zone us-central1-f에서.
_COUNT = r"(?<![\w.-])(?<!\d,)(?P<count>\d{1,3}(?:,\d{3})+|\d{1,9})"
_TIER = r"(?:(?P<tier>preemptible|spot|on[- ]?demand)\s+)?"
_UNIT = r"(?P<unit>device|chip)(?:\s?\(s\)|s)?"
# A mail program may break a line behind the hyphen of a zone.
_ZONE = r"(?P<zone>[a-z]+-\s?[a-z]+\d+-\s?[a-z]\w*(?!\w|-\w))"

# Also as a person who passes a letter on has translated it.
_SPOT = r"(\b(?:preemptible|spot|pr[eé]emptibles?)\b|선점|스팟|抢占|搶占|竞价|プリエンプティブル|スポット)"
_SPOT_BEFORE = re.compile(rf"{_SPOT}[^.]{{0,24}}$", re.IGNORECASE)
_SPOT_AFTER = re.compile(rf"\s*[(,]\s*{_SPOT}", re.IGNORECASE)


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


@lru_cache(maxsize=8)
def _row_shape(generations: Generations) -> re.Pattern[str]:
    kind = rf"(?P<kind>(?:{generation_shape(generations)})(?:-\s?\d+)?)"
    place = rf"in\s+(?:the\s+)?zone(?::\s*|\s+){_ZONE}"
    shape = rf"{_COUNT}\s+{_TIER}(?:Google\s+)?Cloud\s+TPUs?\s+{kind}\s+{_UNIT}\s+{place}"
    return re.compile(shape, re.IGNORECASE | re.ASCII)


def read_letter(pasted: str, generations: Generations) -> Letter:
    """Read a letter.

    :param generations: of the catalogue; a row of another one is handed back.
    :param pasted: its text as it came from the clipboard, plain or HTML.
    """
    lines = plain_text(pasted)
    text = " ".join(lines.split())
    good, unparsed = _rows(text, generations)
    allowances, notes = _merged(good)
    days, more = term(text)
    return Letter(
        tuple(allowances), days, (*unparsed, *half_rows(_between(text, generations), generations)), (*notes, *more)
    )


def _rows(text: str, generations: Generations) -> tuple[list[Allowance], list[UnparsedRow]]:
    good: list[Allowance] = []
    unparsed = []
    end = 0
    for match in _row_shape(generations).finditer(text):
        rows, faults = parse_allowances([_mapping(match)], generations)
        tier = _stray_tier(text[end : match.start()], match, text[match.end() :])
        end = match.end()
        if faults:
            reasons = "; ".join(str(fault).replace("allowances[0].", "") for fault in faults)
            unparsed.append(UnparsedRow(match.group(), reasons))
        elif tier:
            unparsed.append(UnparsedRow(match.group(), f"has no tier of its own, but {tier!r} stands beside it"))
        else:
            good += rows
    return good, unparsed


def _stray_tier(before: str, row: re.Match[str], after: str) -> str:
    """A word near a row without a tier that makes it doubtful that it is on-demand; a guess would cost money."""
    found = None if row["tier"] else _SPOT_BEFORE.search(before) or _SPOT_AFTER.match(after)
    return found.group(1) if found else ""


def _mapping(match: re.Match[str]) -> dict[str, Any]:
    kind = _joined(match["kind"])
    tier = (match["tier"] or "on-demand").lower().replace(" ", "-").replace("ondemand", "on-demand")
    return {
        "count": int(match["count"].replace(",", "")),
        "unit": f"{match['unit'].lower()}s",
        "tier": tier,
        "type" if "-" in kind else "generation": kind,
        "zone": _joined(match["zone"]),
    }


def _joined(name: str) -> str:
    return re.sub(r"\s", "", name).lower()


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


def _between(text: str, generations: Generations) -> list[str]:
    return _row_shape(generations).sub("\x00", text).split("\x00")
