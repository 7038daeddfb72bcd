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
_MONTHS = re.compile(r"\b(\d{1,2}|one|two|three|six|twelve)[- ]months?\b", re.IGNORECASE)


def term(text: str) -> tuple[int | None, list[str]]:
    """Length of the term in days, None with the reason when the letter does not say it plainly."""
    stated = sorted({int(found) for found in _DAYS.findall(text) if int(found) >= _SHORTEST_TERM})
    if len(stated) == 1:
        return stated[0], []
    if stated:
        return None, [f"the letter speaks of {', '.join(map(str, stated))} days; which of them is the term?"]
    months = _MONTHS.search(text)
    found = f"speaks of {months.group()!r}; how many days is that?" if months else "states no number of days"
    return None, [f"the letter {found}"]
