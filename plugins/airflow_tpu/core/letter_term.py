"""How many days a letter of the TPU Research Cloud gives."""

from __future__ import annotations

import re

# 90 days, 90-day, and how that is written where letters are translated.
_DAYS = re.compile(
    r"(?<![\w.,-])(?<!월 )(?<!月 )(\d{1,4})(?:\s|-)?"
    r"(?:(?:days?|Tagen?|jours?|d[ií]as?|giorni|dagen|dagar|dni|дн(?:ей|я)|день|gün|hari|ngày)\b|日|天|일)",
    re.IGNORECASE,
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
