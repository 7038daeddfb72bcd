"""Manifests of checkpoints: what a script writes last into each of them, and what the mirror writes where none does."""

from __future__ import annotations

import json
import os
from typing import Dict, NamedTuple, Optional, Tuple

MANIFEST = "MANIFEST.json"  # as trc_checkpoint.py writes it and protocol.CHECKPOINT_MANIFEST says
LIMIT = 16 * 1024 * 1024  # bytes


class Entry(NamedTuple):
    """One file of a manifest; an empty checksum is not compared."""

    path: str
    size: int
    crc32c: str


class Manifest(NamedTuple):
    """What a manifest says.

    :param step: completed training steps, None if it does not say.
    :param links: where links point, by name.
    :param created: Unix time, None if it does not say.
    :param is_set: made by the mirror for files without one.
    :param left_out: what the mirror could not take along.
    """

    step: Optional[int]
    files: Tuple[Entry, ...]
    links: Dict[str, str]
    created: Optional[float]
    is_set: bool
    left_out: Tuple[str, ...]


def parse(content: bytes) -> Manifest:
    """Read a manifest.

    :raises ValueError: if it is none, or names a path outside its directory.
    """
    try:
        document = json.loads(content.decode("utf-8"))
        entries = (Entry(str(one["path"]), int(one["size"]), str(one.get("crc32c") or "")) for one in document["files"])
        files = tuple(entries)
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
    return Manifest(
        step=_count(document.get("step")),
        files=files,
        links=links,
        created=float(created) if _is_instant(created) else None,
        is_set=document.get("layout") == "files",
        left_out=left_out,
    )


def _check_below(name: str) -> None:
    """An object name is somebody else's text: it must not lead out of the directory it is restored into."""
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "\0" in name:
        raise ValueError("its manifest names %r" % name)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_instant(value: object) -> bool:
    """Python reads NaN and Infinity as well; neither is a time."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11
