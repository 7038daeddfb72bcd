# SPDX-License-Identifier: Apache-2.0
"""Find the number of days for which a letter of the TPU Research Cloud gives TPUs."""

from __future__ import annotations

import re

# 90 days, 90-day, and how that is written where letters are translated; a day of a month is none of them.
_WORDS = (
    r"(?:days?|Tagen?|tägige?\w*|jours?|d[ií]as?|giorni|dagen?|dager|dagar|dni\w*|dn[íů]|дн(?:ей|я|ів|і)|zile|päivä\w*|nap\w*"
    r"|ημέρες|μέρες|gün\w*|hari|ngày|ימים)\b"
)
_GLUED = "日|天|일|วัน|दिन|يوم|أيام|روز"
_DAYS = re.compile(
    rf"(?<![A-Za-z0-9_.,-])(?<![월月])(?<![월月] )(\d{{1,4}})(?:\s|-|\sde\s)?(?:{_WORDS}|{_GLUED})", re.IGNORECASE
)
_SHORTEST_TERM = 14  # a letter also says "7 days before the end"
_NUMBER = r"\d{1,3}|an?|half an?|one|two|three|four|five|six|nine|ten|twelve|eighteen|thirty|sixty|ninety|hundred"
_OTHER_PERIODS = re.compile(rf"\b(?:{_NUMBER})[- ](?:months?|weeks?|years?|quarters?)\b", re.IGNORECASE)
_WORDED_DAYS = re.compile(r"\b(?:thirty|sixty|ninety|hundred(?: and \w+)?)[- ]days?\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?;。])\s+|\n\s*\n")
_NOT_A_TERM = re.compile(
    r"\b(?:credits?|accounts?|billing|exten\w+|additional|another|more|remaining|left|within|respond|reply|feedback"
    r"|survey|kept|deleted|previous(?:ly)?|earlier|asked|request(?:ed)?|was|were|struck|denied|ended|expired)\b"
    r"|\bnot\b|크레딧|抵免|延长|연장",
    re.IGNORECASE,
)


def term(text: str) -> tuple[int | None, list[str]]:
    """Length of the term in days, None with the reason when the letter does not say it plainly.

    :param text: plain text of the letter with its lines.
    """
    stated = sorted({int(found) for found in _DAYS.findall(" ".join(text.split())) if int(found) >= _SHORTEST_TERM})
    others = [found.group() for shape in (_OTHER_PERIODS, _WORDED_DAYS) for found in shape.finditer(text)]
    if len(stated) == 1 and not others:
        certain = [one for one in _statements(text) if not _NOT_A_TERM.search(one)]
        sure = any(stated[0] in map(int, _DAYS.findall(one)) for one in certain)
        return (stated[0], []) if sure else (None, [f"the letter says {stated[0]} days of something; is it the term?"])
    if len(stated) > 1:
        return None, [f"the letter speaks of {', '.join(map(str, stated))} days; which of them is the term?"]
    periods = [*(f"{days} days" for days in stated), *dict.fromkeys(map(repr, others))]
    found = f"speaks of {' and '.join(periods)}; how many days is the term?" if periods else "states no number of days"
    return None, [f"the letter {found}"]


def _statements(text: str) -> list[str]:
    """The sentences that state a number of days."""
    return [one for one in (" ".join(part.split()) for part in _SENTENCE.split(text)) if _DAYS.search(one)]
