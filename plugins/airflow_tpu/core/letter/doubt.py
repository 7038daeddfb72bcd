# SPDX-License-Identifier: Apache-2.0
"""Decide whether the words around a row leave it in doubt: denied, asked for, ended, struck, or of another tier."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_tpu.core.letter.html_text import STRUCK


def _words(*shapes: str) -> re.Pattern[str]:
    return re.compile("|".join(shapes), re.IGNORECASE)


_GONE = _words(
    r"\b(?:den(?:y|ied)|declined?|reject(?:ed)?|refused?|revoked?|withdrawn|removed?|cancell?ed|expired?|ended"
    r"|terminated|suspended|lost|unable|unfortunately|no longer|nor|neither|none|exclud(?:ed?|es|ing)|discontinued)\b",
    r"(?:\bnot|n't) (?:\w+ ){0,2}(?:grant|approv|includ|contain|cover|giv|free|eligible|part of|ha[sdv]|get|access)",
    r"\bcannot (?:grant|approve|give|offer)\b|\blist price\b|\b(?:is|are)(?: now)? (?:billed|charged)\b",
    "거부|거절|취소|만료|종료|제외|더 이상|拒绝|拒絕|不再|不包括|不包含|未获|取消|过期|期限切れ|終了|却下",
    r"\b(?:regular|full|normal|usual|standard) (?:price|rate)s?\b|(?<!of )\bcharged? for\b"
    r"|\bbillable\b|\bdiscount\w*|\b(?!100 ?%)\d+ ?%"
    r"|\breclaim(?:ed)?\b|\btak(?:e|en|ing) (?:back|away)\b|\b(?:is|are) over\b",
    r"[✗✘❌☒🚫✖]|\\(?:st|sout|cancel)\b",
)
_OLDER = _words(
    r"\b(?:previous(?:ly)?|earlier|former(?:ly)?|older?|past|originally|used to|until now"
    r"|so far|had|was|were|ends?|ending|paid)\b",
    "이전|기존|以前|之前|原来|旧",
)
_ASKED = _words(
    r"\b(?:ask(?:ed)?|request(?:ed|s)?|appl(?:y|ied)|applications?|want(?:ed)?|wish(?:ed)?|propos(?:ed?|al)|pending"
    r"|waiting|waitlist(?:ed)?|under review|examples?|e\.g\.|such as|would|could|might|hope|upcoming|instead of"
    r"|rather than|except|without|but not|not|if|reduced|increased|will|soon|next)\b",
    r"\[ \]|\bcolleague|\b(?:other|another|different|else's) (?:\w+ ){0,2}(?:project|account|group|team)s?\b",
    "신청|요청|예시|대기|申请|申請|請求|リクエスト|例えば|例如",
)
_GIVES = _words(
    r"\b(?:now (?:ha[sv]e?|gives?)|approved|granted|accepted|current(?:ly)?|active|gives?|ha(?:s|ve) access)\b",
    "승인|받았|받은|왔다|批准|可以|获得|收到|許可",
)
_AGAIN = _words(_GIVES.pattern, r"\b(?:new|now|free|available|have|get|yours?)\b", "허용|무료|免费|無料")
_BACK = _words(
    r"\b(?:above|these|those|they|it|this|both|all|none|first|second|third|last|quotas?|rows?|access|trial)\b"
)
_CONDITION = _words(r"\b(?:if|when|once|after|until|before|unless|will|other|may|should)\b")
_SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n\s*\n")
_PARAGRAPHS = 3
_BESIDE = re.compile(r"[\t(\[=:/→|]|->?\s")
_ENGLISH = re.compile(r"\b[a-z]{2,}\b", re.IGNORECASE | re.ASCII)
_HARMLESS = frozenset(
    [
        "free",
        "of",
        "charge",
        "for",
        "days",
        "day",
        "granted",
        "approved",
        "active",
        "available",
        "new",
        "yes",
        "ok",
        "enabled",
        "confirmed",
        "and",
        "or",
    ]
)
_TIERS = frozenset(("spot", "preemptible", "on", "demand", "ondemand"))
STRUCK_OUT = "is struck out or hidden"
_LIKE_WORD = re.compile(r"[^\W_]+")
_PERIOD = re.compile(r"\d+[ -]days?|free \d+")
_UNFINISHED = re.compile(r"\d\s*(?:[a-z-]+\s*)?(?:[+&/x×→]|->?|and|or|to|plus|of|bis)\s*$", re.IGNORECASE)
_MORE = re.compile(r"\s*(?:and|or|&|/|,|\+)?\s*(?:in )?(?:zone )?[a-z]+-[a-z]+\d+(?:-[a-z])?\b", re.IGNORECASE)


@dataclass(frozen=True)
class Around:
    """Words around a row.

    :param heading: the lines above it, back to the row before.
    :param before: what stands before it on its line.
    :param behind: what stands behind it on its line, with the lines that continue it.
    """

    heading: str
    before: str
    behind: str


def doubt_of_line(around: Around) -> str:
    """Why the line of a row leaves it in doubt; empty if it does not."""
    line = f"{around.before} \n {around.behind}"
    if STRUCK in line:
        return STRUCK_OUT
    for shape in (_GONE, _OLDER, _ASKED):
        if found := shape.search(line):
            return _beside(found.group())
    if _UNFINISHED.search(around.before):
        return "follows another count"
    if _MORE.match(around.behind):
        return "is followed by another zone"
    if _BESIDE.match(around.behind.lstrip(" ")) or _ENGLISH.search(around.behind):
        return _odd(around.behind)
    return _odd(around.before.rpartition("\t")[0], numbered=True)


def doubt_of_heading(heading: str, inherited: str) -> str:
    """Why the lines above a row leave it in doubt; empty if they do not.

    :param inherited: the doubt of the row before, which holds until something is given again.
    """
    scope = "\n\n".join(re.split(r"\n\s*\n", heading.strip())[-_PARAGRAPHS:])
    last = _SENTENCE.split(scope.strip())[-1]
    gives = _GIVES.search(last) and not _GONE.search(last)
    found = _OLDER.search(last) if gives else _GONE.search(scope) or _OLDER.search(last) or _ASKED.search(last)
    if found:
        return f"stands below {found.group()!r}"
    return "" if _AGAIN.search(heading) else inherited


def is_denial(reason: str) -> bool:
    """Whether a reason says that the row is not given, rather than that its reading is open."""
    return STRUCK_OUT in reason or _GONE.search(reason) is not None


def taken_back(text: str, *, to_end: bool) -> str:
    """The word with which a text behind rows, or above a quoted letter, takes them back; empty if none does.

    :param to_end: whether its last words are a sentence also without a full stop.
    """
    for sentence in _SENTENCE.split(text + "." * to_end):
        found = _GONE.search(sentence)
        if found and sentence.endswith((".", "!", "。")) and _BACK.search(sentence) and not _CONDITION.search(sentence):
            return found.group()
    return ""


def _odd(text: str, *, numbered: bool = False) -> str:
    rest = _PERIOD.sub(" ", text.lower())
    words = [word for word in _LIKE_WORD.findall(rest) if word not in _HARMLESS and not (numbered and word.isdecimal())]
    return "" if not words or set(words) <= _TIERS else _beside(" ".join(text.split()))


def _beside(word: str) -> str:
    return f"has {word!r} beside it"
