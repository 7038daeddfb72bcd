# SPDX-License-Identifier: Apache-2.0
"""Content on disk: one file per object generation or upload session.

A file has a random name and becomes part of an object only by the database row that names it, so a crash leaves at
worst a file that no row names; :meth:`BlobFolder.remove_unknown` removes those at the next start.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from localcloud.gcs.storage.digests import Digest

COPY_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class Content:
    """Finished content that no object names yet.

    :param blob: name of the file in the blob folder.
    :param size: bytes.
    :param md5: base64, or ``None`` for composite objects: Google knows no MD5 of those.
    :param crc32c: base64.
    :param components: number of components of a composite object.
    """

    blob: str
    size: int
    md5: str | None
    crc32c: str
    components: int | None = None


class BlobWriter:
    """A file being written, hashed on the way.

    :param blob: its name.
    :param file: opened for writing at the right place.
    :param digest: of the bytes that are in it already.
    """

    def __init__(self, blob: str, file: BinaryIO, digest: Digest) -> None:
        self.blob = blob
        self.digest = digest
        self._file = file

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self.digest.update(data)

    async def write_all(self, body: AsyncIterator[bytes]) -> None:
        """Append everything that arrives."""
        async for chunk in body:
            self.write(chunk)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def content(self) -> Content:
        """Close the file and describe what is in it."""
        self.close()
        return Content(self.blob, self.digest.size, self.digest.md5, self.digest.crc32c)


class BlobFolder:
    """The folder that holds all content.

    :param root: created if missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def path(self, blob: str) -> Path:
        """Return where a blob lies."""
        return self._root / blob[:2] / blob

    def _fresh(self) -> str:
        blob = secrets.token_hex(16)
        self.path(blob).parent.mkdir(exist_ok=True)
        return blob

    def create(self) -> BlobWriter:
        """Start an empty file."""
        blob = self._fresh()
        return BlobWriter(blob, self.path(blob).open("xb"), Digest())

    @contextmanager
    def writing(self) -> Iterator[BlobWriter]:
        """Start an empty file that is deleted again if anything inside fails, the client's disappearance included."""
        writer = self.create()
        try:
            yield writer
        except BaseException:
            writer.close()
            self.remove(writer.blob)
            raise

    def append(self, blob: str, digest: Digest) -> BlobWriter:
        """Continue a file after the bytes that ``digest`` covers; what lies behind them is cut off."""
        os.truncate(self.path(blob), digest.size)
        return BlobWriter(blob, self.path(blob).open("ab"), digest)

    def open(self, blob: str) -> BinaryIO:
        """Open a file for reading."""
        return self.path(blob).open("rb")

    def digest(self, blob: str, length: int) -> Digest:
        """Hash the first ``length`` bytes of a file again (blocking)."""
        digest = Digest()
        with self.open(blob) as file:
            while digest.size < length and (data := file.read(min(COPY_CHUNK, length - digest.size))):
                digest.update(data)
        return digest

    def copy(self, blob: str) -> str:
        """Give a file a second name; content never changes once committed, so a hard link is a copy."""
        fresh = self._fresh()
        os.link(self.path(blob), self.path(fresh))
        return fresh

    @contextmanager
    def owned(self, blob: str) -> Iterator[None]:
        """Delete a finished file if anything inside fails: no row names it then."""
        try:
            yield
        except BaseException:
            self.remove(blob)
            raise

    def join(self, files: Iterable[BinaryIO]) -> Content:
        """Write several open files one after the other into a new one (blocking)."""
        with self.writing() as writer:
            for file in files:
                while data := file.read(COPY_CHUNK):
                    writer.write(data)
            return writer.content()

    def remove(self, *blobs: str) -> None:
        """Delete files; those being read stay readable until they are closed."""
        for blob in blobs:
            self.path(blob).unlink(missing_ok=True)

    def remove_unknown(self, known: frozenset[str]) -> int:
        """Delete every file that is not ``known`` and return how many there were."""
        orphans = [path.name for path in self._root.glob("??/*") if path.name not in known]
        self.remove(*orphans)
        return len(orphans)
