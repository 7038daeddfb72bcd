# SPDX-License-Identifier: Apache-2.0
"""Every ``gs://`` URI in the words that a person hands to a run: each may move data between regions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

_SCHEME = "gs://"
_URI = re.compile(r"([a-z0-9][a-z0-9._-]*[a-z0-9])(/[^\s\"'`,;|<>()\\]*)?")
_WILDCARD = re.compile(r"[*?\[{$]")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_BUCKET_VARIABLE = re.compile(r"gs://\$\{?([A-Za-z_]\w*)")
_END = "/:.}]=&"  # what a sentence or a list leaves behind a URI
# --data_dir=URI, --data_dir URI, DATA_DIR=URI, data_dir: "URI"
_NAME = re.compile(r"""([A-Za-z][\w.-]*)["']?(?:\s*[=:]|\s)\s*["'\[({]*\Z""")
_NAME_LENGTH = 200
_READ = re.compile(r"data|input|corpus|vocab|tfrecord|image", re.IGNORECASE)
_WRITTEN = re.compile(
    r"out|save|dest|log|model|work|ckpt|checkpoint|export|result|artifact|tensorboard|summary|job|write|upload|cache",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class NamedURI:
    """A ``gs://`` URI, and where it stands.

    :param field: of the form.
    :param uri: of a pattern, the folder.
    :param start: of a pattern, everything before its first wildcard; else the URI.
    :param is_read: whether what it names has to be there: a pattern, or behind a name such as ``--data_dir``.
    """

    field: str
    uri: str
    start: str
    is_read: bool = False

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self.uri.removeprefix(_SCHEME).partition("/")[0]


def named_uris(field: str, text: str) -> Iterator[NamedURI]:
    """URIs anywhere in a text, each with what its surroundings say of it.

    :param field: of the form, that the text comes from.
    :param text: arguments, lines of an environment, a command or a configuration.
    """
    place = text.find(_SCHEME)
    while place >= 0:
        begin = place + len(_SCHEME)
        following = text.find(_SCHEME, begin)
        found = _URI.match(text, begin, following if following >= 0 else len(text))
        if found is not None:
            path = found[2] or ""
            pattern = _WILDCARD.search(path)
            start = path[: pattern.start()] if pattern else path.rstrip(_END)
            head = f"{_SCHEME}{found[1]}"
            is_read = _is_read(text[max(0, place - _NAME_LENGTH) : place], pattern is not None)
            yield NamedURI(field, f"{head}{_folder(path)}", f"{head}{start}", is_read)
        place = following


def _is_read(before: str, is_pattern: bool) -> bool:
    name = _NAME.search(before)
    if name is not None and _WRITTEN.search(name[1]):
        return False
    return is_pattern or (name is not None and _READ.search(name[1]) is not None)


def uris_in(text: str) -> Iterator[str]:
    """URIs anywhere in a text: alone, behind ``--data=``, in a list, in JSON.

    Of a pattern such as ``gs://b/train-*`` the folder is given, since that is what can be measured.
    """
    return (found.uri for found in named_uris("", text))


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with the values of variables in place of ``$NAME`` and ``${NAME}``; others stay.

    :param variables: values by name.
    """
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), text)


def unset_bucket(text: str, known: Collection[str]) -> str:
    """Return the variable that a text for a shell names a bucket by and nothing sets, empty if there is none.

    :param text: which may set variables itself.
    :param known: names that are set.
    """
    for name in _BUCKET_VARIABLE.findall(text):
        set_here = re.search(rf"(?<![\w${{]){name}\b", text)
        if name not in known and not name.startswith("TRC_") and set_here is None:
            return str(name)
    return ""


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
    return whole.rstrip(_END)
