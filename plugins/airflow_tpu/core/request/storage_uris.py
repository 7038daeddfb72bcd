"""Every ``gs://`` URI in the words that a person hands to a run: each may move data between regions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_SCHEME = "gs://"
_URI = re.compile(r"([a-z0-9][a-z0-9._-]*[a-z0-9])(/[^\s\"'`,;|<>()\\]*)?")
_WILDCARD = re.compile(r"[*?\[{$]")


def uris_in(text: str) -> Iterator[str]:
    """URIs anywhere in a text: alone, behind ``--data=``, in a list, in JSON.

    Of a pattern such as ``gs://b/train-*`` the folder is given, since that is what can be measured.
    """
    for rest in text.split(_SCHEME)[1:]:
        found = _URI.match(rest)
        if found is not None:
            yield f"{_SCHEME}{found[1]}{_folder(found[2] or '')}"


def outermost(uris: Iterable[str]) -> list[str]:
    """URIs without those that lie below another one: what is below a folder is measured once."""
    every = dict.fromkeys(uris)
    return [uri for uri in every if not any(folder in every for folder in _above(uri))]


def _above(uri: str) -> Iterator[str]:
    while (uri := uri.rpartition("/")[0]) not in ("gs:/", "gs:", ""):
        yield uri


def _folder(path: str) -> str:
    pattern = _WILDCARD.search(path)
    whole = path[: pattern.start()].rpartition("/")[0] if pattern else path
    return whole.rstrip("/:.}]=&")
