# SPDX-License-Identifier: Apache-2.0
"""An HTTP/1.1 relay that accepts what strict servers refuse.

TensorFlow's storage client sends ``Transfer-Encoding: identity`` beside a ``Content-Length``, and chunked bodies beside
a ``Content-Length``: legal for a lenient reader, a 400 or 501 elsewhere. The relay makes each request unambiguous.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

HEAD_LIMIT = 256 * 1024
_COPY = 256 * 1024


@dataclass(frozen=True)
class Stream:
    """Both directions of one connection.

    :param reader: bytes that arrive.
    :param writer: bytes that leave.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class ProtocolError(Exception):
    """A message that is not HTTP/1.1, or a connection that ended inside one."""


@dataclass(frozen=True)
class Head:
    """First line and headers of a request or response.

    :param first: request line or status line.
    :param headers: names and values in order.
    """

    first: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str:
        """Return the value of a header, or an empty string."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    def replaced(self, drop: set[str], add: list[tuple[str, str]]) -> Head:
        """Return a copy without some headers (lower-case names) and with others."""
        return Head(self.first, [pair for pair in self.headers if pair[0].lower() not in drop] + add)

    def encode(self) -> bytes:
        """Return the bytes on the wire."""
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "chunked" in self.get("transfer-encoding").lower()

    @property
    def length(self) -> int | None:
        """Announced length of the body, or ``None``."""
        text = self.get("content-length")
        return int(text) if text.isdigit() else None


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Return the next head, or ``None`` if the connection ended before it.

    :raises ProtocolError: if what comes is none.
    """
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ProtocolError("the connection ended inside a head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise ProtocolError("the head is too long") from error
    first, *lines = text.split("\r\n")[:-2]
    if "HTTP/1." not in first or len(first.split()) < 2:
        raise ProtocolError("the first line is none of HTTP/1.1")
    pairs = (line.partition(":") for line in lines)
    return Head(first, [(name.strip(), value.strip()) for name, _, value in pairs])


async def relay(client: Stream, server: Stream) -> None:
    """Pass requests one way and responses the other until a side is done.

    :raises ProtocolError: if a side speaks no HTTP/1.1.
    :raises OSError: if a connection breaks.
    """
    while request := await read_head(client.reader):
        await _forward_request(request, client, server)
        response = await read_head(server.reader)
        if response is None:
            raise ProtocolError("the server closed the connection instead of answering")
        await _forward_response(request, response, client, server)
        if "close" in (request.get("connection").lower(), response.get("connection").lower()):
            return


async def _forward_request(request: Head, client: Stream, server: Stream) -> None:
    if request.get("expect").lower() == "100-continue":
        client.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    drop = {"expect", "content-length" if request.chunked else "transfer-encoding", "x-forwarded-proto"}
    server.writer.write(request.replaced(drop, [("X-Forwarded-Proto", "https")]).encode())
    if request.chunked:
        await _pass_chunks(client.reader, server.writer)
    else:
        await _pass_bytes(client.reader, server.writer, request.length or 0)


async def _forward_response(request: Head, response: Head, client: Stream, server: Stream) -> None:
    client.writer.write(response.encode())
    status = int(response.first.split()[1])
    if request.first.startswith("HEAD ") or status in (204, 304):
        await client.writer.drain()
    elif response.chunked:
        await _pass_chunks(server.reader, client.writer)
    else:
        await _pass_bytes(server.reader, client.writer, response.length or 0)


async def _pass_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int) -> None:
    while length:
        data = await reader.read(min(_COPY, length))
        if not data:
            raise ProtocolError("the connection ended inside a body")
        writer.write(data)
        length -= len(data)
        await writer.drain()
    await writer.drain()


async def _pass_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass chunks, their sizes and the trailer on as they are."""
    size = -1
    while size:
        line = await _line(reader)
        writer.write(line)
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise ProtocolError("malformed chunk size") from None
        if size:
            await _pass_bytes(reader, writer, size)
            writer.write(await _line(reader))
    while (line := await _line(reader)) != b"\r\n":
        writer.write(line)
    writer.write(b"\r\n")
    await writer.drain()


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise ProtocolError("the connection ended inside a chunked body")
    return line
