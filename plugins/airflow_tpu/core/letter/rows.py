# SPDX-License-Identifier: Apache-2.0
"""Find the rows of one mail, and hand back each that its surroundings leave in doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from airflow_tpu.core.catalogue.generations import Generations
from airflow_tpu.core.grant.allowance import Allowance, parse_allowances
from airflow_tpu.core.letter.doubt import doubt_of_line, is_denial
from airflow_tpu.core.letter.surroundings import Place, places
from airflow_tpu.core.letter.tiers import other_tier, spot_word
from airflow_tpu.core.letter.unparsed_rows import UnparsedRow, generation_shape

# ASCII throughout: languages without spaces glue their words to a row, 총64 spot ... in zone us-central1-f에서.
_COUNT = r"(?<![\w.-])(?<!\d,)(?P<count>\d{1,3}(?:,\d{3})+|\d{1,9})"
_TIER = r"(?:(?P<tier>preemptible|spot|on[- ]?demand)\s+)?"
_UNIT = r"(?P<unit>device|chip)(?:\s?\(s\)|s)?"
# A mail program may break a line behind the hyphen of a zone.
_ZONE = r"(?P<zone>[a-z]+-\s?[a-z]+\d+-\s?[a-z]\w*(?!\w|-\w))"


@dataclass(frozen=True)
class Rows:
    """Rows of one mail.

    :param good: those that are certain.
    :param unparsed: those that are not, with the reason.
    :param between: the text between them.
    """

    good: tuple[Allowance, ...]
    unparsed: tuple[UnparsedRow, ...]
    between: tuple[str, ...]


@lru_cache(maxsize=8)
def row_shape(generations: Generations) -> re.Pattern[str]:
    """A regular expression for a row in either dialect."""
    kind = rf"(?P<kind>(?:{generation_shape(generations)})(?:-\s?\d+)?)"
    place = rf"in\s+(?:the\s+)?zone(?::\s*|\s+){_ZONE}"
    shape = rf"{_COUNT}\s+{_TIER}(?:Google\s+)?Cloud\s+TPUs?\s+{kind}\s+{_UNIT}\s+{place}"
    return re.compile(shape, re.IGNORECASE | re.ASCII)


def find_rows(text: str, outside: str, generations: Generations) -> Rows:
    """Read the rows of one mail.

    :param text: plain text of the mail.
    :param outside: every word of the thread that belongs to no row.
    """
    shape = row_shape(generations)
    good: list[Allowance] = []
    unparsed = []
    denied = set()
    matches = list(shape.finditer(text))
    for match, place in zip(matches, places(text, [found.span() for found in matches]), strict=True):
        allowances, wrong = parse_allowances([_mapping(match)], generations)
        reasons = [str(fault).replace("allowances[0].", "") for fault in wrong]
        reasons += _tier_doubts(match["tier"], place, outside)
        reasons += filter(None, (doubt_of_line(place.around), place.doubt))
        if not reasons:
            good += allowances
            continue
        unparsed.append(UnparsedRow(match.group(), "; ".join(reasons)))
        denied |= {_pool(row) for row in allowances if any(map(is_denial, reasons))}
    contradicted = [row for row in good if _pool(row) in denied]
    unparsed += [UnparsedRow(str(row), "is given in one place and taken back in another") for row in contradicted]
    certain = tuple(row for row in good if _pool(row) not in denied)
    return Rows(certain, tuple(unparsed), tuple(shape.sub("\x00", text).split("\x00")))


def _tier_doubts(tier: str | None, place: Place, outside: str) -> Iterator[str]:
    """Why the tier is not certain: a guess would cost money."""
    if tier:
        if word := other_tier(tier, place.around):
            yield f"is {tier}, but {word!r} stands beside it"
    elif word := spot_word(place.around, outside):
        yield f"has no tier of its own, but {word!r} stands beside it"
    elif place.follows:
        yield "has no tier of its own, and continues the row before it"


def _mapping(match: re.Match[str]) -> dict[str, Any]:
    kind = _joined(match["kind"])
    tier = " ".join((match["tier"] or "on-demand").lower().split())
    return {
        "count": int(match["count"].replace(",", "")),
        "unit": f"{match['unit'].lower()}s",
        "tier": tier.replace(" ", "-").replace("ondemand", "on-demand"),
        "type" if "-" in kind else "generation": kind,
        "zone": _joined(match["zone"]),
    }


def _joined(name: str) -> str:
    return re.sub(r"\s", "", name).lower()


def _pool(row: Allowance) -> tuple[str, ...]:
    return row.unit, row.tier, row.zone, row.generation, row.accelerator_type
