# SPDX-License-Identifier: Apache-2.0
"""Which files of an output directory are pushed, and why the others are not. No entry is fatal to the others."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Iterator, NamedTuple

import protocol

_NAME_LIMIT = 1024  # bytes of UTF-8: https://cloud.google.com/storage/docs/objects#naming


class OutputFile(NamedTuple):
    """One name in the tree.

    :param name: relative to the directory, ``/`` between parts; bytes that are not UTF-8 as ``\\xff``.
    :param path: what to open.
    :param reason: why it is not pushed, empty if it is.
    :param target: where a link points that is recorded instead of followed, else empty.
    """

    name: str
    path: Path
    reason: str = ""
    target: str = ""

    def below(self, folder: str) -> OutputFile:
        """Return the entry as it is named in a manifest that lists several folders."""
        target = "%s/%s" % (folder, self.target) if self.target else ""
        return self._replace(name="%s/%s" % (folder, self.name), target=target)


def scan(root: Path, prefix: str, since_ns: int = 0) -> list[OutputFile]:
    """Return all entries below ``root`` in a fixed order.

    :param root: the directory.
    :param prefix: of the object names, because their length is limited as a whole.
    :param since_ns: instant in ns; regular files that have not been changed after it are left out, unread.
    """
    return sorted(_walk(root, prefix, since_ns), key=lambda entry: entry.name)


def _walk(root: Path, prefix: str, since_ns: int) -> Iterator[OutputFile]:
    unreadable: list[OSError] = []
    for directory, directories, names in os.walk(str(root), onerror=unreadable.append):
        links = [name for name in directories if os.path.islink(os.path.join(directory, name))]
        for path in (Path(directory, name) for name in names + links):
            if not _is_old(path, since_ns):
                yield _entry(root, path, prefix)
    for error in unreadable:
        yield OutputFile(
            printable(os.path.relpath(error.filename, str(root))), Path(error.filename), _read_error(error)
        )


def _is_old(path: Path, since_ns: int) -> bool:
    """Return whether a regular file has not been changed since; one that is gone is left to the next look at it."""
    try:
        found = os.lstat(str(path))
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_ctime_ns <= since_ns


def _entry(root: Path, path: Path, prefix: str) -> OutputFile:
    relative = os.path.relpath(str(path), str(root))
    try:
        mode = os.lstat(str(path)).st_mode
        if stat.S_ISLNK(mode):
            return _link(root, path, relative, prefix)
        if not stat.S_ISREG(mode):
            return OutputFile(printable(relative), path, "is no file but a %s" % _kind(mode))
        return OutputFile(printable(relative), path, _reason_to_skip(path, relative, prefix))
    except OSError as error:
        return OutputFile(printable(relative), path, _read_error(error))


def _link(root: Path, path: Path, relative: str, prefix: str) -> OutputFile:
    """A link to a file inside the tree is pushed as that file; to a directory inside, recorded; others refused."""
    target, top = os.path.realpath(str(path)), os.path.realpath(str(root))
    if os.path.commonpath([target, top]) != top:
        return OutputFile(printable(relative), path, "links out of the output directory")
    if os.path.isdir(target):
        return OutputFile(printable(relative), path, target=printable(os.path.relpath(target, top)))
    if not os.path.isfile(target):
        return OutputFile(printable(relative), path, "links to nothing that could be pushed")
    return OutputFile(printable(relative), Path(target), _reason_to_skip(Path(target), relative, prefix))


def _reason_to_skip(path: Path, relative: str, prefix: str) -> str:
    """Return why a regular file cannot or must not be an object, empty if it may."""
    try:
        name = relative.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if b"\n" in name or b"\r" in name:
        return "its name has a line break, which Cloud Storage does not allow"
    if len(prefix.encode("utf-8")) + len(name) > _NAME_LIMIT:
        return "its name would be longer than %d bytes" % _NAME_LIMIT
    if _looks_secret(path):
        return "looks like a key or a password file"
    return ""


def _looks_secret(path: Path) -> bool:
    if protocol.is_secret_name(path.name):
        return True
    if path.stat().st_size > protocol.SECRET_SIZE:
        return False
    with path.open("rb") as file:
        return protocol.is_secret_text(file.read(protocol.SECRET_SIZE))


def _read_error(error: OSError) -> str:
    return "cannot be read: %s" % error.strerror


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "device"), (stat.S_ISCHR, "device"))
    return next((name for test, name in kinds if test(mode)), "special file")


def printable(name: str) -> str:
    """Return a name that can be written as UTF-8, whatever bytes are in it."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
