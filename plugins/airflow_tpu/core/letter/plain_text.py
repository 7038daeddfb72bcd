"""Strip a pasted letter of what mail programs, browsers and word processors have added to it."""

from __future__ import annotations

import html
import re
import unicodedata

_UNSEEN = re.compile(r"<(style|script|head)\b.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_BREAKS = re.compile(r"<(br|/?(p|div|li|ul|ol|t[rdh]|table|h[1-6]|blockquote))\b[^<>]*>", re.IGNORECASE)
_TAGS = re.compile(r"</?[a-zA-Z][^<>]*>")
_LINKS = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)|\s?\(https?://[^()\s]*\)")
_QUOTED_PRINTABLE = re.compile(r"=\r?\n|=(?:C2=A0|20)(?!\d)")
_QUOTE_MARKS = re.compile(r"^[ \t]*(?:>[ \t]*)+", re.MULTILINE)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_HYPHENS = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
# Bullets and the markers of bold, italics, code and table cells; none of them occurs in a type, a tier or a zone.
_MARKS = re.compile("[*_`~|\u2022\u2023\u25aa-\u25e6\u2043\u2219\u00b7\u30fb]+")


def plain_text(pasted: str) -> str:
    """The letter's words, lines kept, without mark-up, quote marks, bullets and invisible characters."""
    soft = _QUOTED_PRINTABLE.sub(lambda found: "" if found.group().endswith("\n") else " ", pasted)
    seen = _BREAKS.sub("\n", _UNSEEN.sub(" ", soft))
    text = _LINKS.sub(lambda found: found[1] or "", html.unescape(_TAGS.sub("", seen)))
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)))
    text = _QUOTE_MARKS.sub("", _HYPHENS.sub("-", text))
    text = "".join(letter if letter.isprintable() or letter in "\r\n" else " " for letter in text)
    return "\n".join(" ".join(line.split()) for line in _MARKS.sub(" ", text).splitlines())
