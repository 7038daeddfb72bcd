# SPDX-License-Identifier: Apache-2.0
"""Manifests of checkpoints: what a script writes last into each of them, and what the mirror writes where none does."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, NamedTuple, Optional, Tuple

MANIFEST = "MANIFEST.json"  # as trc/checkpoint.py writes it and protocol.CHECKPOINT_MANIFEST says
VERSION = 1  # of the layout; trc/checkpoint.py writes the same
LIMIT = 16 * 1024 * 1024  # bytes


class UnknownManifestVersion(ValueError):
    """A manifest of another version: its checkpoint is neither restored nor uploaded nor deleted."""


class CheckpointFile(NamedTuple):
    """One file of a manifest; an empty checksum is not compared."""

    path: str
    size: int
    crc32c: str


class CheckpointManifest(NamedTuple):
    """The content of a manifest.

    :param step: completed training steps, None if unknown.
    :param links: target of each link, by name.
    :param created: Unix time, None if unknown.
    :param is_file_set: made by the mirror for files without a manifest.
    :param left_out: files that the mirror could not include.
    """

    step: Optional[int]
    files: Tuple[CheckpointFile, ...]
    links: Dict[str, str]
    created: Optional[float]
    is_file_set: bool
    left_out: Tuple[str, ...]


def parse(content: bytes) -> CheckpointManifest:
    """Read a manifest.

    :raises UnknownManifestVersion: if it has another version than this code reads.
    :raises ValueError: if it is damaged, or names a path outside its directory.
    """
    try:
        document = json.loads(content.decode("utf-8"))
        check_version(document)
        files = tuple(_file(one) for one in document["files"])
        links = {str(name): str(target) for name, target in document.get("links", {}).items()}
        left_out = tuple(map(str, document.get("left_out", ())))
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("its manifest is damaged (%r)" % error) from error
    for name in [entry.path for entry in files] + list(links):
        _check_below(name)
    for name, target in links.items():
        _check_below(target.lstrip("./") or ".")  # up, if at all, only at its beginning
        _check_below(os.path.normpath(os.path.join(os.path.dirname(name), target)))
    created = document.get("created")
    return CheckpointManifest(
        step=_count(document.get("step")),
        files=files,
        links=links,
        created=float(created) if _is_instant(created) else None,
        is_file_set=document.get("layout") == "files",
        left_out=left_out,
    )


def _file(one: Dict[str, Any]) -> CheckpointFile:
    return CheckpointFile(str(one["path"]), int(one["size"]), str(one.get("crc32c") or ""))


def check_version(document: Dict[str, Any]) -> None:
    """Accept this version, and a script's own manifest that names none.

    :raises UnknownManifestVersion: for every other version.
    """
    version = document.get("schema_version", VERSION)
    if version != VERSION or isinstance(version, bool):
        raise UnknownManifestVersion("its manifest has version %r, this runner reads version %d" % (version, VERSION))


def _check_below(name: str) -> None:
    """Refuse a path that leads out of the directory: object names are untrusted text."""
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "\0" in name:
        raise ValueError("its manifest names %r" % name)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_instant(value: object) -> bool:
    """Python's JSON reader accepts NaN and Infinity as well; neither is a time."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11
