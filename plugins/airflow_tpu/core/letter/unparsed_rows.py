# SPDX-License-Identifier: Apache-2.0
"""Find text that looks like a row of a grant and cannot be parsed: a dropped row is never missed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from airflow_tpu.core.catalogue.generations import Generations

_KIND = "type"
_FEATURES = {
    "count": r"(?<![\w.,:/-])\d{1,6}(?![\w.:/%-])",
    "tier": r"\b(preemptible|spot|on[- ]?demand|reserved)\b",
    "TPU": r"\bTPUs?\b",
    _KIND: r"\b((GENERATION)(-\d+)?|TPU\d+x)(?![\w-])",
    "unit": r"\b(device|chip)(\(s\)|s)?(?!\w)",
    "zone": r"\b[a-z]+-[a-z]+\d+(-\s?[a-z]\w*)?(?![\w-])",
}
_LIKENESS = 3
_GAP = 24
"""Characters between two features of one row at most; a sentence that mentions types spreads them wider."""
_COUNTED = re.compile(r"(?<![\w.,-])\d+\s+(?:\w+\s+)?$")
_SENTENCE_END = re.compile(r"[.!?;]\s")


@dataclass(frozen=True)
class UnparsedRow:
    """Something that looks like a row of the grant and was not understood.

    :param text: what the letter says.
    :param reason: what is wrong with it.
    """

    text: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", " ".join(self.text.split()))

    def __str__(self) -> str:
        return f"{self.text!r}: {self.reason}"


def generation_shape(generations: Generations) -> str:
    """A regular expression for every name of a generation, and for what looks like the name of a new one."""
    known = sorted(generations.spellings, key=len, reverse=True)
    return "|".join([*map(re.escape, known), r"v\d+[a-z]*"])


def half_rows(texts: Iterable[str], generations: Generations) -> list[UnparsedRow]:
    """Find text with three or more features of a row close together.

    :param texts: the letter between its rows.
    """
    features = _features(generations)
    found = []
    for rest in texts:
        for cluster in _clusters(rest, features):
            names = {name for name, _, _ in cluster}
            if len(names) >= _LIKENESS or _has_counted_type(rest, cluster):
                missing = [name for name in features if name not in names]
                reason = "not worded like a row" + (f": no {', no '.join(missing)}" if missing else "")
                found.append(UnparsedRow(rest[cluster[0][1] : cluster[-1][2]], reason))
    return found


@lru_cache(maxsize=8)
def _features(generations: Generations) -> dict[str, re.Pattern[str]]:
    shapes = _FEATURES | {_KIND: _FEATURES[_KIND].replace("GENERATION", generation_shape(generations))}
    # Words of other scripts are glued to a row.
    return {name: re.compile(shape, re.IGNORECASE | re.ASCII) for name, shape in shapes.items()}


def _clusters(text: str, features: dict[str, re.Pattern[str]]) -> Iterator[list[tuple[str, int, int]]]:
    """Features with neither a wide gap nor the end of a sentence between them, as (name, begin, end)."""
    spots = [(name, *found.span()) for name, shape in features.items() for found in shape.finditer(text)]
    cluster: list[tuple[str, int, int]] = []
    for spot in sorted(spots, key=lambda one: one[1:]):
        between = text[cluster[-1][2] : spot[1]] if cluster else ""
        if len(between) > _GAP or _SENTENCE_END.search(between):
            yield cluster
            cluster = []
        cluster.append(spot)
    if cluster:
        yield cluster


def _has_counted_type(text: str, cluster: list[tuple[str, int, int]]) -> bool:
    """Whether it has something like "10 free v3-8"."""
    begin = cluster[0][1]
    return any(_COUNTED.search(text[begin : spot[1]]) for spot in cluster if spot[0] == _KIND)
