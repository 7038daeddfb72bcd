# SPDX-License-Identifier: Apache-2.0
"""The checkpoints in the run's checkpoint directory, and when they count as complete.

A directory with a manifest is a checkpoint once every file that the manifest names is there. Where there is no manifest
at all (a framework that does not know ours) :mod:`checkpoints.quiescence` takes all files together.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from checkpoints.manifest import LIMIT, MANIFEST, CheckpointManifest, UnknownManifestVersion, parse

# Half-written by their names: ours, TensorFlow's and Orbax's.
_TEMPORARY = (".*", "*.tmp", "*_temp", "*.orbax-checkpoint-tmp*")


class LocalCheckpoint(NamedTuple):
    """A checkpoint on this machine.

    :param name: of its directory; ``files`` for a set of files without a manifest.
    :param order: the newer, the higher; None: after all that are in the bucket.
    :param step: completed training steps, None if unknown.
    :param files: path of each file, by its name below the checkpoint.
    :param checksums: CRC-32C of each file in base64, as far as known.
    :param links: target of each link, by name; only file sets have them.
    :param manifest: content of the manifest, empty if it has yet to be made.
    :param left_out: files of a set that never stopped changing.
    """

    name: str
    order: Optional[int]
    step: Optional[int]
    files: Dict[str, Path]
    checksums: Dict[str, str]
    links: Dict[str, str]
    manifest: bytes
    left_out: Tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Equal for equal content, as far as that can be told without reading the files."""
        if self.manifest:
            return hashlib.sha256(self.manifest).hexdigest()
        stats = sorted((name, signature(path)) for name, path in self.files.items())
        return hashlib.sha256(repr((stats, sorted(self.links.items()))).encode("utf-8", "backslashreplace")).hexdigest()


Signature = Tuple[int, int, int]


def signature(path: Path) -> Signature | None:
    """Return what changes when a file is written to or replaced; None if there is no such regular file."""
    try:
        found = os.lstat(str(path))
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def is_temporary(name: str) -> bool:
    """Tell whether a name marks half-written content."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _TEMPORARY)


def is_blank(root: Path) -> bool:
    """Tell whether a directory holds nothing to resume from.

    :raises OSError: if it cannot be listed, which does not mean that it is empty.
    """
    return all(is_temporary(name) for name in os.listdir(str(root)))


def has_manifests(root: Path) -> bool:
    """Tell whether the script commits its checkpoints by manifests."""
    return any(path.is_file() for path in root.glob("*/" + MANIFEST))


def list_committed(root: Path) -> Iterator[LocalCheckpoint]:
    """Yield the checkpoints with a manifest whose files are there in their sizes, the newest first."""
    found = (_read(directory) for directory in _directories(root))
    whole = [one for one in found if one is not None]
    yield from sorted(whole, key=lambda one: (one.order or 0, one.name), reverse=True)


def list_unknown(root: Path) -> Dict[str, str]:
    """Return why checkpoints with a manifest of another version are left alone, by the names of their directories."""
    found: Dict[str, str] = {}
    for directory in _directories(root):
        try:
            _manifest(directory)
        except UnknownManifestVersion as error:
            found[directory.name] = str(error)
        except (OSError, ValueError):
            continue
    return found


def _directories(root: Path) -> Iterator[Path]:
    return (path.parent for path in root.glob("*/" + MANIFEST) if not is_temporary(path.parent.name))


def _manifest(directory: Path) -> Tuple[bytes, CheckpointManifest]:
    with (directory / MANIFEST).open("rb") as file:
        content = file.read(LIMIT)
    return content, parse(content)


def _read(directory: Path) -> LocalCheckpoint | None:
    try:
        content, manifest = _manifest(directory)
    except (OSError, ValueError):
        return None
    files = {entry.path: directory / entry.path for entry in manifest.files}
    if any((signature(files[entry.path]) or (None,))[0] != entry.size for entry in manifest.files):
        return None
    checksums = {entry.path: entry.crc32c for entry in manifest.files if entry.crc32c}
    order = manifest.step if manifest.step is not None else _number_in(directory.name)
    return LocalCheckpoint(directory.name, order, manifest.step, files, checksums, {}, content)


def _number_in(name: str) -> int:
    digits = re.findall(r"\d+", name)
    return int(digits[-1]) if digits else 0
