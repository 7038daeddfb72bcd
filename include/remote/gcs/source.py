# SPDX-License-Identifier: Apache-2.0
"""Reads a local file for one upload, and notices when it changes meanwhile."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from pathlib import Path

CHUNK_BYTES = 8 * 1024 * 1024  # a multiple of 256 KiB, as resumable uploads demand


class FileChanged(Exception):
    """The file is being written while it is read."""


class SourceFile:
    """A file opened for one upload: its size is fixed at that moment, and so is what is read.

    :param path: a regular file; a link to one is not followed.
    :param growing: whether bytes may be appended meanwhile, as to the log of a running command.
    :raises FileChanged: if it is no regular file (any more).
    """

    def __init__(self, path: Path, growing: bool = False) -> None:
        # Between the listing and now a FIFO may have taken the name; opening one would block for ever.
        self._descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._growing = growing
        self._before = os.fstat(self._descriptor)
        if not stat.S_ISREG(self._before.st_mode):
            self.close()
            raise FileChanged("is no regular file any more")
        self.size = self._before.st_size
        self.md5 = ""

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def hash(self) -> None:
        """Read all of it once and set ``md5``."""
        digest = hashlib.md5()  # noqa: S324 - the checksum that Cloud Storage verifies; no security rests on it
        for offset in range(0, self.size, CHUNK_BYTES):
            digest.update(self.read(offset))
        self.md5 = base64.b64encode(digest.digest()).decode("ascii")

    def read(self, offset: int) -> bytes:
        """Return the chunk at ``offset``.

        :raises FileChanged: if the file has become shorter.
        """
        wanted = min(CHUNK_BYTES, self.size - offset)
        data = os.pread(self._descriptor, wanted, offset)
        if len(data) != wanted:
            raise FileChanged("became shorter while it was read")
        return data

    def check(self) -> None:
        """Raise :class:`FileChanged` if the file was written to since it was opened."""
        now = os.fstat(self._descriptor)
        if not self._growing and (now.st_size, now.st_mtime_ns) != (self.size, self._before.st_mtime_ns):
            raise FileChanged("was written to while it was read (%d bytes, then %d)" % (self.size, now.st_size))


class SourceBytes(SourceFile):
    """What the runner itself uploads, such as a manifest: no file, since the script may have filled the disk.

    :param content: all of it.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)
        self.md5 = ""
        self.hash()

    def close(self) -> None:
        """Nothing is open."""

    def read(self, offset: int) -> bytes:
        """Return the chunk at ``offset``."""
        return self._content[offset : offset + CHUNK_BYTES]

    def check(self) -> None:
        """Nothing changes."""
