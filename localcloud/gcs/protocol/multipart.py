# SPDX-License-Identifier: Apache-2.0
"""Streaming reader of ``multipart/related``: the metadata part in memory, the content part as a stream.

Some clients end lines with LF alone (gcsfs) and content may end with a CR of its own, so the line end is learnt from
the first boundary line and only that is cut off before the last one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.message import Message

from localcloud.gcs.storage.errors import GCSError

_MAX_HEAD = 1024 * 1024


def boundary_of(content_type: str) -> bytes:
    """Return the boundary of a multipart content type.

    :raises GCSError: 400 if there is none.
    """
    message = Message()
    message["Content-Type"] = content_type
    boundary = message.get_param("boundary")
    if not message.get_content_type().startswith("multipart/") or not isinstance(boundary, str) or not boundary:
        raise GCSError(400, "badContent", f"Not a multipart content type with a boundary: {content_type!r}")
    return boundary.encode()


class RelatedReader:
    """Reads the parts one after the other.

    :param body: chunks of the request body.
    :param boundary: from the content type.
    """

    def __init__(self, body: AsyncIterator[bytes], boundary: bytes) -> None:
        self._body = body
        self._marker = b"--" + boundary
        self._line_end = b"\r\n"
        self._buffer = b""
        #: Whether the last part has been read.
        self.done = False

    async def _fill(self) -> None:
        try:
            self._buffer += await anext(self._body)
        except StopAsyncIteration:
            raise GCSError(400, "badContent", "Malformed multipart body: it ends too early") from None

    async def _until(self, mark: bytes) -> bytes:
        """Return everything up to and without ``mark``, which is consumed."""
        while mark not in self._buffer:
            if len(self._buffer) > _MAX_HEAD:
                raise GCSError(400, "badContent", "Malformed multipart body: part headers are too long")
            await self._fill()
        before, _, self._buffer = self._buffer.partition(mark)
        return before

    async def start(self) -> None:
        """Find the first boundary line.

        :raises GCSError: 400 if there is none.
        """
        await self._until(self._marker)
        if (await self._until(b"\n")).strip(b" \t") == b"":
            self._line_end = b"\n"

    async def headers(self) -> dict[str, str]:
        """Return the headers of the next part, names in lower case.

        :raises GCSError: 400 if they are malformed.
        """
        found: dict[str, str] = {}
        while line := (await self._until(b"\n")).rstrip(b"\r"):
            name, _, value = line.decode("utf-8", "replace").partition(":")
            found[name.strip().lower()] = value.strip()
        return found

    async def small_part(self) -> bytes:
        """Return the body of the part whose headers have been read."""
        return b"".join([chunk async for chunk in self.part()])

    async def part(self) -> AsyncIterator[bytes]:
        """Yield the body of the part whose headers have been read, and stop behind the boundary that ends it."""
        mark = self._line_end + self._marker
        while mark not in self._buffer:
            keep = len(mark) - 1
            if len(self._buffer) > keep:
                yield self._buffer[:-keep]
                self._buffer = self._buffer[-keep:]
            await self._fill()
        last, _, self._buffer = self._buffer.partition(mark)
        yield last
        await self._end_of_marker()

    async def _end_of_marker(self) -> None:
        while len(self._buffer) < 2:
            await self._fill()
        self.done = self._buffer.startswith(b"--")
        if not self.done:
            await self._until(b"\n")
