# SPDX-License-Identifier: Apache-2.0
"""Reads a local file for one upload, and notices when it changes meanwhile."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import os
import stat
from pathlib import Path
from typing import Iterator

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
        self._begin(self._before.st_size)

    def _begin(self, size: int) -> None:
        self.size = size
        self._first = b""
        self._digest = hashlib.md5()  # noqa: S324 - the checksum that Cloud Storage verifies; no security rests on it
        self._hashed = 0

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @property
    def md5(self) -> str:
        """MD5 in base64; reads what no upload has read yet.

        :raises FileChanged: if the file has become shorter.
        """
        while self._hashed < self.size:
            self.read(self._hashed)
        return base64.b64encode(self._digest.digest()).decode("ascii")

    def read(self, offset: int) -> bytes:
        """Return the chunk at ``offset``, hashed on the way where it continues what was read before.

        :raises FileChanged: if the file has become shorter.
        """
        if offset == 0 and self._first:
            return self._first
        data = self._read(offset, min(CHUNK_BYTES, self.size - offset))
        if offset == self._hashed:
            self._digest.update(data)
            self._hashed += len(data)
        if len(data) == self.size:
            self._first = data  # a small file is hashed before it is sent, and read once
        return data

    def blocks(self, offset: int, end: int) -> Iterator[bytes]:
        """Yield the chunks between two offsets; the next one is read and hashed while one is being sent.

        :raises FileChanged: if the file has become shorter.
        """
        with concurrent.futures.ThreadPoolExecutor(1) as ahead:
            following = ahead.submit(self.read, offset)
            while offset < end:
                data = following.result()[: end - offset]
                offset += len(data)
                if offset < end:
                    following = ahead.submit(self.read, offset)
                yield data

    def _read(self, offset: int, wanted: int) -> bytes:
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
        self._begin(len(content))

    def close(self) -> None:
        """Nothing is open."""

    def _read(self, offset: int, wanted: int) -> bytes:
        return self._content[offset : offset + wanted]

    def check(self) -> None:
        """Nothing changes."""
