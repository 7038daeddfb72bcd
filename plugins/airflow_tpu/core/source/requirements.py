"""Requirements files: what they name beside them has to travel along, or pip does not find it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

# https://pip.pypa.io/en/stable/reference/requirements-file-format/
_OPTION = re.compile(r"(?:-r|-c|-e|--requirement|--constraint|--editable|-f)(?:\s+|=|(?<=-[rcef]))(?P<path>\S+)")
_COMMENT = re.compile(r"(^|\s+)#.*$")


def named_paths(requirements: Path) -> list[Path]:
    """Return the local files and folders that a requirements file names, those of included files too, itself first.

    :param requirements: the file.
    """
    found: list[Path] = []
    waiting = [requirements]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.append(path)
        if path.is_file() and path.suffix not in (".whl", ".gz", ".zip"):
            waiting += _references(path)
    return found


def _references(path: Path) -> Iterator[Path]:
    text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    for line in text.splitlines():
        entry = _COMMENT.sub("", line).strip()
        option = _OPTION.match(entry)
        name = option["path"] if option else entry.partition(";")[0].strip()
        if option or name.startswith((".", "file:")) or name.endswith((".whl", ".tar.gz", ".zip")):
            # pip reads included files relative to this one, but paths of projects relative to the working directory.
            yield path.parent / name.removeprefix("file:").partition("[")[0]
