# SPDX-License-Identifier: Apache-2.0
"""Strip a pasted letter of what mail programs, browsers and word processors have added to it."""

from __future__ import annotations

import re
import unicodedata

from airflow_tpu.core.letter.html_text import html_text

_LINKS = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)|\s?\(https?://[^()\s]*\)")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_HYPHENS = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
# Bullets and the markers of bold, italics and code; none of them occurs in a type, a tier or a zone.
_MARKS = re.compile("[*_`~\u2022\u2023\u25aa-\u25e6\u2043\u2219\u00b7\u30fb]+")


def plain_text(pasted: str) -> str:
    """The letter's words: lines and quote marks kept, a tab between cells, no mark-up, no bullets."""
    text = _LINKS.sub(lambda found: found[1] or "", html_text(pasted))
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)))
    text = _MARKS.sub(" ", _HYPHENS.sub("-", text)).replace("|", "\t")
    text = "".join(letter if letter.isprintable() or letter in "\r\n\t" else " " for letter in text)
    return "\n".join(_line(line) for line in text.splitlines())


def _line(text: str) -> str:
    return "\t".join(" ".join(cell.split()) for cell in text.split("\t")).strip()
