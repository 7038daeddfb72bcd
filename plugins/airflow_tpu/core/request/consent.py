# SPDX-License-Identifier: Apache-2.0
"""Consent to pay: one line that says for what, how much, until when and why.

A refusal prints the line, a person ends it with the reason. So a reason that was given for one thing buys no other, and
none buys for ever.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from airflow_tpu.core.request.fields import Invalid

_USD, _UNKNOWN = r"at most (?P<usd>[0-9]{1,7}(?:\.[0-9]{1,2})?) USD", "an unknown amount"
_LINE = re.compile(
    rf"(?:{_USD}|(?={_UNKNOWN}))(?P<unknown>(?: and )?{_UNKNOWN})? a run until (?P<until>[^ ]+) for (?P<what>.+?) "
    "because(?P<reason>| .*)"
)
# Letters that show nothing, as NFKC leaves them: the fillers of Korean syllables.
_INVISIBLE = "\u115f\u1160"
_EMPTY_WORDS = """
a accept accepted agree agreed all any because confirmed do don empty fine given i is it n na nada nah never no nein nej
nei nem nie niet nil non none nope not nothing null não nao false off ok okay pay paid please reason reasons si sí sure
tba tbd test thank thanks the to todo true use want whatever why without yes yep ja oui да нет 否 无 没有 沒有 无理由
なし いいえ 없음 아니요 아니오
"""
_NO_REASONS = frozenset(_EMPTY_WORDS.split())
"""Words that give no reason, alone or together."""


@dataclass(frozen=True)
class Consent:
    """What a person accepts to pay.

    :param what: what is paid for, items with commas between them.
    :param usd: US dollars that one run may cost at most, as far as they are known.
    :param unknown: whether an unknown amount beside it is accepted.
    :param until: aware instant by which everything that is paid for has ended.
    :param reason: why.
    """

    what: str
    usd: Decimal
    unknown: bool
    until: datetime
    reason: str

    def __str__(self) -> str:
        known = [f"at most {self.usd} USD"] if self.usd or not self.unknown else []
        amount = " and ".join([*known, *([_UNKNOWN] if self.unknown else [])])
        until = f"{self.until.astimezone(UTC):%Y-%m-%dT%H:%M}Z"
        return f"{amount} a run until {until} for {self.what} because {self.reason}"

    @classmethod
    def parse(cls, line: str) -> Consent | None:
        """Read a line, None if it is another text."""
        found = _LINE.fullmatch(line)
        until = _instant(found["until"]) if found else None
        if found is None or until is None:
            return None
        return cls(
            found["what"], Decimal(found["usd"] or 0), found["unknown"] is not None, until, found["reason"].strip()
        )

    def names(self, item: str) -> bool:
        """Whether it is about an item."""
        return f", {item}, " in f", {self.what}, "


def reason(given: str) -> str:
    """Read the form's reason for paid use: a line of consent, or a text for the case that nothing has to be paid.

    :raises Invalid: it gives no reason.
    """
    found = given.strip()
    consent = Consent.parse(found)
    why = found if consent is None else consent.reason
    if given and not _says_why(why):
        raise Invalid(
            "gives no reason: say in a few words why money may be spent, or leave the field empty to spend none"
        )
    return found


def _says_why(given: str) -> bool:
    shown = "".join(one for one in unicodedata.normalize("NFKC", given).casefold() if one not in _INVISIBLE)
    words = [word for word in re.findall(r"[^\W_]+", shown) if word not in _NO_REASONS and len(set(word)) > 1]
    letters = [one for word in words for one in word if one.isalpha()]
    # A word of Chinese or Japanese has two letters, one of an alphabet more.
    return len(letters) >= (2 if any(unicodedata.category(one) == "Lo" for one in letters) else 3)


def _instant(written: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        return None
    return found if found.tzinfo else None
