# SPDX-License-Identifier: Apache-2.0
"""A file that is downloaded in pieces, several at a time, and hashed while they arrive."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from pathlib import Path
from typing import Optional, Set

from gcs.source import CHUNK_BYTES


class TargetFile:
    """A file of known size, written in pieces of :data:`gcs.source.CHUNK_BYTES` in any order by several threads.

    It is open from its first piece to its last: a checkpoint may have more files than a process may open.

    :param path: of the file, which is created with its directories.
    :param size: bytes.
    """

    def __init__(self, path: Path, size: int) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self.pieces = range(0, size, CHUNK_BYTES)
        self._path = path
        self._descriptor: Optional[int] = None
        self._digest = hashlib.md5()  # noqa: S324 - the checksum that Cloud Storage computes; no security rests on it
        self._written: Set[int] = set()
        self._next = 0
        self._lock = threading.Lock()
        self._hashing = threading.Lock()

    def write(self, offset: int, data: bytes) -> bool:
        """Write one piece and hash what has arrived without a gap; return whether it was the last.

        :param offset: of the piece.
        """
        os.pwrite(self._open(), data, offset)
        with self._lock:
            self._written.add(offset)
            complete = len(self._written) == len(self.pieces)
        while self._next in self._written and self._hashing.acquire(blocking=complete):
            try:
                if self._next == offset:  # as it mostly is: no need to read it from the file
                    self._digest.update(data)
                    self._next += CHUNK_BYTES
                self._hash()
            finally:
                self._hashing.release()
        return complete

    def _open(self) -> int:
        with self._lock:
            if self._descriptor is None:
                self._descriptor = os.open(str(self._path), os.O_RDWR | os.O_CLOEXEC)
            return self._descriptor

    def _hash(self) -> None:
        while self._next in self._written:
            self._digest.update(os.pread(self._open(), CHUNK_BYTES, self._next))  # it is in memory still
            self._next += CHUNK_BYTES

    @property
    def md5(self) -> str:
        """MD5 in base64, after the last piece."""
        with self._hashing:
            self._hash()
            return base64.b64encode(self._digest.digest()).decode("ascii")

    def close(self) -> None:
        """Close the file, if it is open."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None
