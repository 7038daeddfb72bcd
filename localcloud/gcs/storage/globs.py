"""Glob patterns of object listings.

Syntax: https://cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob
``*`` stays inside one path segment, ``**`` crosses ``/``, ``?`` is one character, ``[...]`` a set, ``{a,b}`` a choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from localcloud.gcs.storage.errors import GCSError

_TOKEN = re.compile(
    r"(?P<deep>\*\*)|(?P<star>\*)|(?P<one>\?)|(?P<set>\[[!^]?[^\]]+\])|(?P<brace>[{},])|(?P<text>.)", re.S
)
_PLAIN = {"deep": ".*", "star": "[^/]*", "one": "[^/]"}
_BRACES = {"{": "(?:", "}": ")", ",": "|"}


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return the regular expression of a glob.

    :raises GCSError: 400 if the glob is malformed.
    """
    try:
        return re.compile("".join(_pieces(glob)), re.S)
    except re.error:
        raise GCSError(400, "invalid", f"Invalid value for matchGlob: {glob!r}") from None


def _pieces(glob: str) -> Iterator[str]:
    depth = 0
    for match in _TOKEN.finditer(glob):
        kind, text = match.lastgroup or "", match.group()
        depth += {"{": 1, "}": -1}.get(text, 0) if kind == "brace" else 0
        if kind == "brace" and (text != "," or depth > 0):
            yield _BRACES[text]
        elif kind == "set":
            yield "[^" + text[2:] if text[1] in "!^" else text
        else:
            yield _PLAIN.get(kind) or re.escape(text)
