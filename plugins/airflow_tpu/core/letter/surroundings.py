# SPDX-License-Identifier: Apache-2.0
"""Say which words of a mail belong to which of its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_tpu.core.letter.doubt import Around, doubt_of_heading, taken_back
from airflow_tpu.core.letter.html_text import STRUCK

_SENTENCE_END = re.compile(r"[.!?]\s|。")
_LINE_OR_SENTENCE_END = re.compile(r"[.!?]\s|。|\n")
_JOINS = re.compile(r"[\s,;]*(?:and|but|or|not|plus|instead|rather|as well)\b", re.IGNORECASE)
_CONTINUES = re.compile(r"[a-z(,]")
_LETTERS = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Place:
    """Where a row stands.

    :param around: the words around it.
    :param doubt: why the text above or below leaves it in doubt; empty if it does not.
    :param follows: whether the row before it stands on the same line.
    """

    around: Around
    doubt: str
    follows: bool


def places(text: str, spans: Sequence[tuple[int, int]]) -> list[Place]:
    """Where each row of a mail stands.

    :param spans: begin and end of each row, in their order.
    """
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    gaps = [text[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    tails = ["", *(_tail(gap) for gap in gaps[1:-1]), _tail(gaps[-1], is_last=True)]
    found: list[Place] = []
    heading, before, doubt = "", "", ""
    for number in range(len(spans)):
        gap = gaps[number]
        lead = _lead(gap, tails[number])
        above, _, own = lead.rpartition("\n")
        if _LETTERS.search(above.replace(STRUCK, "")):
            heading = above
            doubt = doubt_of_heading(heading.replace(STRUCK, " "), doubt)
        follows = number > 0 and "\n" not in gap
        runs_on = follows and not _SENTENCE_END.search(gap)
        before = f"{before.replace(STRUCK, '')} {own}" if runs_on else own
        found.append(Place(Around(heading, before, tails[number + 1]), doubt, follows))
    return _with_ends(found, gaps)


def _tail(gap: str, *, is_last: bool = False) -> str:
    """What belongs to the row in front: the rest of its line, and lines that continue it."""
    end = _LINE_OR_SENTENCE_END.search(gap)
    if not end:
        return gap if is_last or not _JOINS.match(gap) else ""
    tail = gap[: end.start()]
    if end.group() == "\n":
        lines = gap[end.end() :].split("\n")
        for line in lines if is_last else lines[:-1]:
            if not _CONTINUES.match(line) or line.endswith(":"):
                break
            tail += "\n" + line
    return tail


def _lead(gap: str, tail: str) -> str:
    """What belongs to the row behind."""
    rest = gap[len(tail) :]
    # One piece between two rows of a line may belong to either: the last part of it counts for both.
    return rest if rest or not tail else re.split(r"[,;)\t]", tail)[-1]


def _with_ends(found: list[Place], gaps: list[str]) -> list[Place]:
    """The places, with the doubt of sentences below that take rows back."""
    ended = ""
    for number in reversed(range(len(found))):
        gap = gaps[number + 1]
        is_last = number + 1 == len(found)
        ended = taken_back(gap if is_last else gap.rpartition("\n")[0], to_end=is_last) or ended
        if ended and not found[number].doubt:
            found[number] = Place(found[number].around, f"has {ended!r} said of it below", found[number].follows)
    return found
