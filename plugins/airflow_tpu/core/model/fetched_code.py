# SPDX-License-Identifier: Apache-2.0
"""Code that a script fetches by itself: no digest of the files that travel with it tells whether that has changed."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath

_SUFFIXES = frozenset({"", ".sh", ".bash", ".py", ".jl", ".txt"})
_SIZE_LIMIT = 1024 * 1024  # bytes; a longer file is data
_COMMENT = re.compile(r"^\s*#(?!!).*$", re.MULTILINE)
_VERBS = "clone|pull|fetch|checkout|submodule"
_GIT = re.compile(rf"""\bgit["']?,?\s+["']?(?:-\S+\s+(?:(?!{_VERBS})\S+\s+)?)*(?:{_VERBS})\b""")
_PACKAGE = re.compile(r"\bgit\+\w+://[^\s\"']+")
_COMMIT = re.compile(r"@[0-9a-f]{40}\b")


def fetching_files(archive: bytes) -> list[str]:
    """Return the files of a bundle that fetch code whose commit they do not name.

    :param archive: tar of the script and what travels with it.
    """
    return [name for name, text in _texts(archive) if _fetches(text)]


def _fetches(text: str) -> bool:
    code = _COMMENT.sub("", text)
    packages = _PACKAGE.findall(code)
    return _GIT.search(code) is not None or any(_COMMIT.search(package) is None for package in packages)


def _texts(archive: bytes) -> Iterator[tuple[str, str]]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.size <= _SIZE_LIMIT else None
            if file is not None and PurePosixPath(member.name).suffix in _SUFFIXES:
                yield member.name, file.read().decode("utf-8", "replace")
