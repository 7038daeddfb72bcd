"""Which checkpoints lie in the run's checkpoint directory, and when they can be taken for complete.

A directory with a manifest is a checkpoint once everything that the manifest names is there. Without any manifest (a
framework that knows nothing of us) all files together are taken, once nothing has moved among them for a while.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from checkpoints.manifest import LIMIT, MANIFEST, parse

# Half-written by their names: ours, TensorFlow's and Orbax's.
_TEMPORARY = (".*", "*.tmp", "*_temp", "*.orbax-checkpoint-tmp*")


class Candidate(NamedTuple):
    """A checkpoint on this machine.

    :param name: of its directory; ``files`` for a set of files without a manifest.
    :param order: the newer, the higher; None: after all that are in the bucket.
    :param step: completed training steps, None if unknown.
    :param files: path of each file, by its name below the checkpoint.
    :param checksums: CRC-32C of each file in base64, as far as known.
    :param links: where links point, by name; only sets have them.
    :param manifest: content of the manifest, empty if it must still be made.
    :param left_out: files of a set that never kept still.
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
        """Equal for equal content, as far as it can be told without reading the files."""
        if self.manifest:
            return hashlib.sha256(self.manifest).hexdigest()
        stats = sorted((name, signature(path)) for name, path in self.files.items())
        return hashlib.sha256(repr((stats, sorted(self.links.items()))).encode("utf-8", "backslashreplace")).hexdigest()


Signature = Tuple[int, int, int]


def signature(path: Path) -> Signature | None:
    """What changes when a file is written to or replaced; None if it is no file (any more)."""
    try:
        found = os.lstat(str(path))
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def is_temporary(name: str) -> bool:
    """Tell whether a name says that its content is half-written."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _TEMPORARY)


def is_blank(root: Path) -> bool:
    """Tell whether a directory holds nothing to resume from.

    :raises OSError: if it cannot be listed: that is not the same as nothing.
    """
    return all(is_temporary(name) for name in os.listdir(str(root)))


def has_manifests(root: Path) -> bool:
    """Tell whether the script commits its checkpoints by manifests."""
    return any(path.is_file() for path in root.glob("*/" + MANIFEST))


def committed(root: Path) -> Iterator[Candidate]:
    """Yield the checkpoints with a manifest whose files are there in their sizes, the newest first."""
    found = (_read(path.parent) for path in root.glob("*/" + MANIFEST) if not is_temporary(path.parent.name))
    whole = [one for one in found if one is not None]
    yield from sorted(whole, key=lambda one: (one.order or 0, one.name), reverse=True)


def _read(directory: Path) -> Candidate | None:
    try:
        with (directory / MANIFEST).open("rb") as file:
            content = file.read(LIMIT)
        entries = parse(content)
    except (OSError, ValueError):
        return None
    files = {entry.path: directory / entry.path for entry in entries.files}
    if any((signature(files[entry.path]) or (None,))[0] != entry.size for entry in entries.files):
        return None
    checksums = {entry.path: entry.crc32c for entry in entries.files if entry.crc32c}
    order = entries.step if entries.step is not None else _number_in(directory.name)
    return Candidate(directory.name, order, entries.step, files, checksums, {}, content)


def _number_in(name: str) -> int:
    digits = re.findall(r"\d+", name)
    return int(digits[-1]) if digits else 0
