# SPDX-License-Identifier: Apache-2.0
"""What a run wrote: its manifest, and whether the bucket holds all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_tpu.core import json_form
from airflow_tpu.errors import ArtifactError

VERSION = 1


class Stored(Protocol):
    """An object in the bucket: its size in bytes and its CRC-32C in base64, as Cloud Storage spells it.

    The CRC-32C is empty or None where a listing does not tell it: the bucket has a customer-managed key
    (https://cloud.google.com/storage/docs/encryption/customer-managed-keys#restrictions). A generation is one content.
    """

    @property
    def size(self) -> int: ...

    @property
    def crc32c(self) -> str | None: ...

    @property
    def generation(self) -> int: ...


@dataclass(frozen=True)
class ManifestFile:
    """One file.

    :param path: relative to the manifest's folder.
    :param size: bytes.
    :param crc32c: base64 of the four bytes, most significant first.
    :param md5: base64, empty if it was not computed.
    :param generation: of the object whose upload was answered with this CRC-32C, 0 if it is not known.
    """

    path: str
    size: int
    crc32c: str
    md5: str = ""
    generation: int = 0


@dataclass(frozen=True)
class Problem:
    """Why a file of the manifest is not safely in the bucket.

    :param path: the file.
    :param kind: ``missing``, ``size``, ``crc32c`` or, where the bucket does not tell that, ``generation``.
    :param expected: what the manifest says.
    :param found: what the bucket says, empty if the object is missing.
    """

    path: str
    kind: str
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        if self.kind == "missing":
            return f"{self.path} is missing"
        return f"{self.path}: {self.kind} is {self.found}, expected {self.expected}"


@dataclass(frozen=True)
class Manifest:
    """What was written, recorded last: a folder without a manifest is not complete.

    :param files: every file.
    """

    files: tuple[ManifestFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Read a manifest of the runner, or of a checkpoint (which has more fields, ignored here).

        :raises UnknownVersion: another release has written it. A script's own checkpoint manifest may name no version.
        :raises ArtifactError: if it is damaged, or names a file outside its folder.
        """
        try:
            version = data.get("version", data.get("schema_version", VERSION))
            if isinstance(version, bool) or version != VERSION:
                raise json_form.unknown_version("manifest of an attempt or a checkpoint", version, VERSION)
            files = tuple(_file(entry) for entry in data["files"])
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ArtifactError(f"the manifest is damaged ({error!r}): {str(data)[:200]}") from error
        if len({file.path for file in files}) != len(files):
            raise ArtifactError("the manifest names a file twice")
        return cls(files)


def verify(manifest: Manifest, listing: Mapping[str, Stored]) -> list[Problem]:
    """Compare a manifest with the bucket.

    :param manifest: what should be there.
    :param listing: what is there, by path relative to the manifest's folder; further objects do not matter.
    :return: a problem for each file that is missing or different, empty if all is well.
    """
    found = (_compare(file, listing.get(file.path)) for file in manifest.files)
    return [problem for problem in found if problem is not None]


def _file(entry: Mapping[str, Any]) -> ManifestFile:
    path = str(entry["path"])
    # Odd names are fine here, scripts write them; only a way out of the folder is not.
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} is not a path below the manifest's folder")
    md5, generation = str(entry.get("md5") or ""), int(entry.get("generation") or 0)
    return ManifestFile(path, int(entry["size"]), str(entry["crc32c"]), md5, generation)


def _compare(file: ManifestFile, stored: Stored | None) -> Problem | None:
    if stored is None:
        return Problem(file.path, "missing")
    if stored.size != file.size:
        return Problem(file.path, "size", str(file.size), str(stored.size))
    if stored.crc32c:
        same = stored.crc32c == file.crc32c
        return None if same else Problem(file.path, "crc32c", file.crc32c, stored.crc32c)
    if file.generation and stored.generation != file.generation:
        return Problem(file.path, "generation", str(file.generation), str(stored.generation))
    return None
