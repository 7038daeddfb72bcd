"""What looks like a row of a grant and is none: reported, because a dropped row is never missed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FEATURES = {
    name: re.compile(shape, re.IGNORECASE | re.ASCII)  # words of other scripts are glued to a row
    for name, shape in {
        "count": r"(?<![\w.,:/-])\d{1,6}(?![\w.:/%-])",
        "tier": r"\b(preemptible|spot|on[- ]?demand|reserved)\b",
        "TPU": r"\bTPUs?\b",
        "type": r"\b(v\d+[a-z]*(-\d+)?|TPU\d+x)(?![\w-])",
        "unit": r"\b(device|chip)(\(s\)|s)?(?!\w)",
        "zone": r"\b[a-z]+-[a-z]+\d+(-\s?[a-z]\w*)?(?![\w-])",
    }.items()
}
_LIKENESS = 3
_GAP = 24
"""Characters between two features of one row at most; a sentence that mentions types spreads them wider."""
_SENTENCE_END = re.compile(r"[.!?;]\s")


@dataclass(frozen=True)
class Unread:
    """Something that looks like a row of the grant and was not understood.

    :param text: what the letter says.
    :param reason: what is wrong with it.
    """

    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.text!r}: {self.reason}"


def half_rows(texts: Iterable[str]) -> list[Unread]:
    """What has three or more of a row's features close together.

    :param texts: the letter between its rows.
    """
    found = []
    for rest in texts:
        for cluster in _clusters(rest):
            names = {name for name, _, _ in cluster}
            if len(names) >= _LIKENESS or _counted_type(rest, cluster):
                missing = [name for name in _FEATURES if name not in names]
                reason = "not worded like a row" + (f": no {', no '.join(missing)}" if missing else "")
                found.append(Unread(rest[cluster[0][1] : cluster[-1][2]], reason))
    return found


def _clusters(text: str) -> Iterator[list[tuple[str, int, int]]]:
    """Features with neither a wide gap nor the end of a sentence between them, as (name, begin, end)."""
    spots = [(name, *found.span()) for name, shape in _FEATURES.items() for found in shape.finditer(text)]
    cluster: list[tuple[str, int, int]] = []
    for spot in sorted(spots, key=lambda one: one[1:]):
        between = text[cluster[-1][2] : spot[1]] if cluster else ""
        if len(between) > _GAP or _SENTENCE_END.search(between):
            yield cluster
            cluster = []
        cluster.append(spot)
    if cluster:
        yield cluster


def _counted_type(text: str, cluster: list[tuple[str, int, int]]) -> bool:
    """Whether it has something like "10 free v3-8"."""
    return bool(re.search(r"(?<![\w.,-])\d+\s+(?:\w+\s+)?v\d", text[cluster[0][1] : cluster[-1][2]], re.IGNORECASE))
