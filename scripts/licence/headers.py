# SPDX-License-Identifier: Apache-2.0
"""Put the line that names the licence on top of every source file of the project that has none.

Usage: ``headers.py``; ``scripts/format`` runs it. What is not ours (``vendor``), data and prose carry no such line: the
licence of the whole is in LICENSE.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LICENCE = "SPDX-License-Identifier: Apache-2.0"

COMMENTS = {
    **dict.fromkeys((".py", ".sh", ".toml", ".yaml", ".in", ".Dockerfile", "Dockerfile", "Makefile"), "# {}"),
    ".js": "// {}",
    ".css": "/* {} */",
    ".sql": "-- {}",
    **dict.fromkeys((".html", ".svg"), "<!-- {} -->"),
}
"""How a kind of source file writes a comment, by its suffix, or by its name where it has no suffix."""

BEFORE = ("#!", "<!doctype")
"""What only the first line of a file can be; the licence comes second then."""


def header_of(path: Path, text: str) -> str | None:
    """Return the line that a file has to carry.

    :param path: of the file.
    :param text: its content.
    :return: None for what needs no such line: data, prose, an empty file, somebody else's work.
    """
    if "vendor" in path.parts or not text:
        return None
    comment = COMMENTS.get(path.suffix or path.name) or ("# {}" if text.startswith("#!") else None)
    return comment.format(LICENCE) if comment else None


def with_header(path: Path, text: str) -> str:
    """Return a file's text with the licence on top, unchanged where it is there or not needed.

    :param path: of the file.
    :param text: its content.
    """
    header = header_of(path, text)
    lines = text.splitlines(keepends=True)
    if header is None or f"{header}\n" in lines[:2]:
        return text
    place = 1 if text.startswith(BEFORE) else 0
    return "".join([*lines[:place], f"{header}\n", *lines[place:]])


def without_header(root: Path) -> Iterator[Path]:
    """Yield the source files that lack the line, of those that a clone has or that are about to be added.

    :param root: of the working tree.
    """
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    for path in (root / name for name in names if name):
        kind = path.suffix or path.name
        if path.is_file() and (kind in COMMENTS or not path.suffix):
            text = path.read_text(encoding="utf-8")
            if with_header(path.relative_to(root), text) != text:
                yield path


def main() -> None:
    """Write the line where it is missing, and name the files."""
    for path in without_header(ROOT):
        path.write_text(with_header(path.relative_to(ROOT), path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"licence added: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
