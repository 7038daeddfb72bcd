# SPDX-License-Identifier: Apache-2.0
"""Configuration files that a command line names: what they say is part of what a person asks for."""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

_COMMENTED = frozenset({".cfg", ".conf", ".gin", ".ini", ".py", ".toml", ".yaml", ".yml"})
_KINDS = _COMMENTED | {".json"}
_SIZE_LIMIT = 1024 * 1024  # bytes; a longer file is data
_COMMENT = re.compile(r"(?:^|\s)[#;].*$|^\s*//.*$", re.MULTILINE)
_LONG_STRING = re.compile(r"(\"{3}|'{3}).*?\1", re.DOTALL)


def config_texts(archive: bytes, folder: str, words: Iterable[str]) -> dict[str, str]:
    """Return the text of every configuration file that is named, without its comments, by its path.

    :param archive: tar of the project, as it travels.
    :param folder: in it, that everything runs in.
    :param words: arguments of the script: ``configs/base.yaml``, ``--config=configs/vit.py:b16``.
    """
    paths = {path for word in words for path in _paths(folder, word)}
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name in paths and member.size <= _SIZE_LIMIT else None
            if file is not None:
                found[member.name] = _stated(member.name, file.read().decode("utf-8", "replace"))
    return found


def without_script(words: Sequence[str]) -> list[str]:
    """Return the words of a command line without the Python script that they start, which is no configuration."""
    script = None if "-m" in words else next((word for word in words if word.endswith(".py")), None)
    return [word for word in words if word != script]


def _paths(folder: str, word: str) -> list[str]:
    name = word.rpartition("=")[2].partition(":")[0]
    if PurePosixPath(name).suffix.lower() not in _KINDS:
        return []
    return [posixpath.normpath(posixpath.join(folder, name))]


def _stated(name: str, text: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".py":
        text = _LONG_STRING.sub("", text)
    return _COMMENT.sub("", text) if suffix in _COMMENTED else text
