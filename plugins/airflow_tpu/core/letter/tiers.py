# SPDX-License-Identifier: Apache-2.0
"""Find words for a tier that stand outside of a row, also as a person who passes a letter on has translated them."""

from __future__ import annotations

import re

from airflow_tpu.core.letter.doubt import Around

_SPOT = re.compile(
    r"\b(?:preemptibles?|preemptable|spot|pr[eé]emptibles?)\b|선점|스팟|抢占|搶占|竞价|プリエンプティブル|スポット",
    re.IGNORECASE,
)
# Beside a row without a tier.
_ANY = re.compile(
    rf"{_SPOT.pattern}|\b(?:interruptible|pr[aä]emptiv\w*|best[- ]effort|reserved|flex[- ]start|tiers?)\b",
    re.IGNORECASE,
)
_ON_DEMAND = re.compile(r"\bon[- ]?demand\b|온디맨드|按需|オンデマンド", re.IGNORECASE)
_LONGEST_HEADING = 60


def spot_word(around: Around, outside: str) -> str:
    """A word for spot that may be meant for a row without a tier; the one nearest to it, empty if there is none.

    :param outside: every word of the thread that belongs to no row.
    """
    for text in (around.behind, around.before, around.heading, outside):
        if found := _ANY.findall(text):
            return str(found[-1])
    return ""


def other_tier(tier: str, around: Around) -> str:
    """A word for the other tier than the one that a row states, on its line or as the heading; empty if none is."""
    is_spot = _SPOT.fullmatch(tier) is not None
    other, own = (_ON_DEMAND, _SPOT) if is_spot else (_SPOT, _ON_DEMAND)
    heading = around.heading.strip().rpartition("\n")[2]
    texts = [around.behind, around.before]
    if len(heading) <= _LONGEST_HEADING and not own.search(heading):
        texts.append(heading)
    found = next(filter(None, map(other.search, texts)), None)
    return found.group() if found else ""
