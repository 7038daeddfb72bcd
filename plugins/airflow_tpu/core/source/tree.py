# SPDX-License-Identifier: Apache-2.0
"""A project that was fetched, written to a folder of this machine: names and sizes from outside are not trusted."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT = 1024 * 1024 * 1024
"""Bytes of a fetched project: they pass through the disk of an Airflow worker. Less of it may travel on."""

MOST_FILES = 100_000

_HOPS = 8  # links to links
_LFS = b"version https://git-lfs.github.com/spec/"  # https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
_LFS_SIZE = 1024  # bytes; a pointer is shorter
_ODD = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
"""Control characters, a backslash, and bytes that were no UTF-8."""


class Hostile(ValueError):
    """A tree has a name, a link or a size that is not written to disk; the text names it."""


@dataclass(frozen=True)
class Member:
    """One file or link of a tree.

    :param path: as the tree names it.
    :param size: bytes of a file.
    :param read: gives the content of a file.
    :param executable: whether a file may be run.
    :param target: where a link leads, None for a file.
    """

    path: str
    size: int
    read: Callable[[], bytes]
    executable: bool = False
    target: str | None = None


@dataclass(frozen=True)
class Written:
    """What a folder has got.

    :param links: links that were left out: they lead out of the tree, nowhere, or to a folder.
    :param pointers: files that stand for content in Git LFS, which was not fetched.
    """

    links: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()


def checked(members: Iterable[Member]) -> Iterator[Member]:
    """Pass members on while their names and sizes are fit to be written; nothing is read before.

    :raises Hostile: names the first that is not.
    """
    total, seen = 0, set[str]()
    for member in members:
        problem = _problem(member.path)
        total += member.size
        if member.path in seen:
            problem = "is there twice"
        elif len(seen) >= MOST_FILES:
            problem = f"is one of more than {MOST_FILES:,} files"
        elif total > LIMIT:
            problem = f"has {member.size:,} bytes, with which the project has more than {LIMIT:,}"
        if problem:
            raise Hostile(f"{_printable(member.path)} {problem}")
        seen.add(member.path)
        yield member


def write(members: Iterable[Member], target: Path) -> Written:
    """Write members below a folder; a link to a file of the tree becomes a copy of that file.

    :param members: checked, see :func:`checked`.
    :param target: an empty folder.
    :raises Hostile: a file has another size than was said, or stands where a folder does.
    """
    found = {member.path: member for member in members}
    links, pointers = list[str](), list[str]()
    for path, member in found.items():
        source = resolved(member, found)
        if source is None:
            links.append(path)
            continue
        content = source.read()
        if len(content) != source.size:
            raise Hostile(f"{_printable(path)} has {len(content):,} bytes, {source.size:,} were said")
        if len(content) < _LFS_SIZE and content.startswith(_LFS):
            pointers.append(path)
        _write(target / path, content, source.executable)
    return Written(tuple(links), tuple(pointers))


def resolved(member: Member, members: dict[str, Member]) -> Member | None:
    """Return the file that a link of the tree leads to, None if it leads to none of its files."""
    for _ in range(_HOPS):
        if member.target is None:
            return member
        place = posixpath.normpath(posixpath.join(posixpath.dirname(member.path), member.target))
        following = members.get(place)
        if following is None:
            return None
        member = following
    return None


def _write(path: Path, content: bytes, executable: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise Hostile(f"{_printable(path.name)} is a file and a folder") from None
    path.chmod(0o755 if executable else 0o644)


def _problem(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "is an absolute path"
    if ".." in parts or "." in parts or "" in parts:
        return "leads out of the folder, or has empty parts"
    if _ODD.search(path):
        return "has characters that no file of a project has"
    if any(len(part.encode()) > 255 for part in parts) or len(path) > 1000:
        return "is too long for a file name"
    return ""


def _printable(path: str) -> str:
    return repr(path if len(path) <= 120 else f"{path[:120]}...")
