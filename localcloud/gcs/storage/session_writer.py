# SPDX-License-Identifier: Apache-2.0
"""Writing into an upload session: what is kept when a connection dies in the middle.

Google keeps whole multiples of 256 KiB, except at the end of the object. The running hash is remembered at each
multiple, so that cutting back to one costs no second reading of the file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from localcloud.gcs.storage.blobs import BlobWriter
from localcloud.gcs.storage.digests import Digest
from localcloud.gcs.storage.errors import GCSError

QUANTUM = 256 * 1024


class SessionWriter:
    """One request's way into a session's file.

    :param writer: placed behind what is kept.
    :param skip: how many bytes of the request repeat what is kept already.
    """

    def __init__(self, writer: BlobWriter, skip: int) -> None:
        self._writer = writer
        self._skip = skip
        self._safe = writer.digest.copy()
        self._closed = False
        #: How many bytes the request carried, repeated ones included.
        self.carried = 0

    @property
    def size(self) -> int:
        """How many bytes the file holds."""
        return self._writer.digest.size

    async def write_all(self, body: AsyncIterator[bytes]) -> None:
        """Append a request's body.

        :raises GCSError: 503 if another request on the same session took over meanwhile: the client has given this
            one up, and what still arrives of it must not be mixed in.
        """
        async for chunk in body:
            if self._closed:
                raise GCSError(503, "backendError", "Another request continued this upload session")
            self.carried += len(chunk)
            self._write(chunk[self._skip :])
            self._skip = max(0, self._skip - len(chunk))

    def _write(self, data: bytes) -> None:
        while data:
            room = QUANTUM - self.size % QUANTUM
            self._writer.write(data[:room])
            data = data[room:]
            if self.size % QUANTUM == 0:
                self._safe = self._writer.digest.copy()

    def close(self, complete: bool = False) -> Digest:
        """Close the file and return the hash of what is kept of it: all if the object is complete."""
        self._closed = True
        self._writer.close()
        return self._writer.digest if complete else self._safe
