# SPDX-License-Identifier: Apache-2.0
"""An archive that a project is packed in: what is no file, leads outside or is too large is refused by name."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from airflow_tpu.core.source.tree import Hostile, Member, Written, checked, resolved, write

_JUNK = ("__MACOSX/", "._", ".DS_Store", "pax_global_header")
"""What macOS and git pack along."""

_LONGEST_LINK = 4096  # bytes; PATH_MAX of Linux


class NotAnArchive(ValueError):
    """A file is no archive of the kind that its name says, or a damaged one."""


def unpack(archive: Path, target: Path) -> Written:
    """Unpack an archive; where all of it lies in one folder, as in those of a repository, without that folder.

    :param archive: named ``.tar``, ``.tar.gz``, ``.tgz`` or ``.zip``.
    :param target: an empty folder.
    :raises Hostile: a member is no file or folder, leads outside, or is too large; then nothing was written.
    :raises NotAnArchive: it cannot be read.
    """
    try:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                return _write(_zip_members(packed), target)
        with tarfile.open(archive, "r:*") as tar:
            return _write(_tar_members(tar), target)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
        raise NotAnArchive(f"{type(error).__name__}: {error}") from error


def _write(members: Iterator[Member], target: Path) -> Written:
    found = _without_one_folder(list(checked(members)))
    by_path = {member.path: member for member in found}
    for member in found:
        if resolved(member, by_path) is None:
            raise Hostile(f"{member.path!r} is a link to {member.target!r}, which is no file of the archive")
    return write(found, target)


def _without_one_folder(members: list[Member]) -> list[Member]:
    tops = {member.path.partition("/")[0] for member in members}
    if len(tops) != 1 or any("/" not in member.path for member in members):
        return members
    return [replace(member, path=member.path.partition("/")[2]) for member in members]


def _tar_members(tar: tarfile.TarFile) -> Iterator[Member]:
    for info in tar:
        name = info.name.removeprefix("./")
        if info.isdir() or _is_junk(name):
            continue
        if info.issym():
            yield Member(name, 0, bytes, target=info.linkname)
        elif info.isreg():
            yield Member(name, info.size, partial(_tar_content, tar, info), bool(info.mode & 0o100))
        else:
            raise Hostile(f"{name!r} is {'a hard link' if info.islnk() else 'no file'}")


def _tar_content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(info)
    return file.read() if file is not None else b""


def _zip_members(packed: zipfile.ZipFile) -> Iterator[Member]:
    for info in packed.infolist():
        mode = info.external_attr >> 16
        if info.is_dir() or _is_junk(info.filename):
            continue
        if info.flag_bits & 1:
            raise Hostile(f"{info.filename!r} is encrypted")
        if stat.S_ISLNK(mode) and info.file_size > _LONGEST_LINK:
            raise Hostile(f"{info.filename!r} is a link of {info.file_size:,} bytes")
        if stat.S_ISLNK(mode):
            yield Member(info.filename, 0, bytes, target=packed.read(info).decode("utf-8", "replace"))
        elif mode and stat.S_IFMT(mode) and not stat.S_ISREG(mode):
            raise Hostile(f"{info.filename!r} is no file")
        else:
            yield Member(info.filename, info.file_size, partial(packed.read, info), bool(mode & 0o100))


def _is_junk(name: str) -> bool:
    return name.startswith(_JUNK[0]) or name.rpartition("/")[2].startswith(_JUNK[1:])
