# SPDX-License-Identifier: Apache-2.0
"""Tell the mails of a thread apart: what is quoted is older than the mail around it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_QUOTE_MARKS = re.compile(r"[ \t]*(?:>[ \t]*)*")
_NEXT_MAIL = re.compile(
    r"-{2,}[^-]*(?:original|forwarded|weitergeleitete|원본|전달|原始|转发|轉寄|転送)[^-]*-{2,}|begin forwarded message:"
    r"|.*(?:\b(?:wrote|schrieb|escribió|a écrit)|님이 작성|写道|寫道) ?:$"
    r"|(?:from|von|发件人|發件人|寄件者|보낸 ?사람|差出人) ?: ?\S",
    re.IGNORECASE,
)
# A row whose line ends in the middle: a mail program breaks lines, and puts a quote mark before a part or loses one.
_BEGUN = re.compile(
    r"(?<![\w.-])\d[\d,]*(?: (?:preemptible|spot|on[- ]?demand))?(?: google)?(?: cloud(?: tpus?(?: v\w+(?:-\d*)?"
    r"(?: (?:device|chip)(?: ?\(s\)|s)?(?: in(?: the)?(?: zone:?(?: [a-z]+-(?:[a-z]+\d+-)?)?)?)?)?)?)?)?$",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"(?:preemptible|spot|on[- ]?demand|google|cloud|tpus?|v\d\w*|devices?|chips?|\(s\)|in|the|zone|[a-z]+-\w+"
    r"|[a-z]+\d+-[a-z]|[a-z])(?!\w)",
    re.IGNORECASE,
)
_LONGEST_ROW = 16


def by_depth(texts: Iterable[tuple[int, str]]) -> list[str]:
    """The text of each mail of a thread, the newest first.

    :param texts: plain texts, each with the number of mails around it.
    """
    levels: defaultdict[int, list[str]] = defaultdict(list)
    for outer, text in texts:
        last = depth = outer
        for line in text.splitlines():
            marks = _QUOTE_MARKS.match(line)
            begin = marks.end() if marks else 0
            words = line[begin:]
            quoted = line[:begin].count(">")
            if not quoted and _NEXT_MAIL.match(words):
                depth, words = depth + 1, ""
            if depth + quoted != last and not _continues(levels[last], words):
                last = depth + quoted
                levels[last].append("")
            levels[last].append(words)
        levels[last].append("")
    return ["\n".join(levels[depth]) for depth in sorted(levels)]


def _continues(lines: list[str], words: str) -> bool:
    """Whether a line continues a row that the lines before it have begun."""
    begun = _BEGUN.search(" ".join(" ".join(lines[-_LONGEST_ROW:]).split()))
    return begun is not None and _GOES_ON.match(words) is not None
