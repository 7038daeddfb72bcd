# SPDX-License-Identifier: Apache-2.0
"""A TCP front whose connections can be frozen and cut, for the SSH server that lives in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

_CHUNK = 65536

Serve = Callable[[socket.socket], Awaitable[object]]
"""Serves one accepted connection, given as one end of a socket pair."""


class Relay:
    """Accepts connections and passes their bytes on, unless it refuses or is frozen.

    :param address: where to listen.
    :param port: the port.
    :param serve: takes over each accepted connection.
    """

    def __init__(self, address: str, port: int, serve: Serve) -> None:
        self._listen = (address, port)
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()

    @property
    def listening(self) -> bool:
        """True while connections are accepted."""
        return self._server is not None

    async def accept(self) -> None:
        """Open the listener, unless it is open."""
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, *self._listen)

    def refuse(self) -> None:
        """Close the listener; connections live on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def freeze(self) -> None:
        """Pass no byte on from now; connections stay open."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Pass bytes on again, none lost."""
        self._flowing.set()

    def drop(self) -> None:
        """Cut all connections on both sides."""
        for pair in self._connections:
            for writer in pair:
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours, theirs = socket.socketpair()
        inner_reader, inner_writer = await asyncio.open_unix_connection(sock=ours)
        pair = (writer, inner_writer)
        self._connections.add(pair)
        try:
            await self._flowing.wait()
            # The handshake needs the bytes that the pumps carry, so all three run together.
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, inner_writer))
                tasks.create_task(self._pump(inner_reader, writer))
                tasks.create_task(self._take_over(theirs))
        finally:
            self._connections.discard(pair)
            for side in pair:
                side.transport.abort()

    async def _take_over(self, connection: socket.socket) -> None:
        await self._serve(connection)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # one side was cut: the other follows below
        writer.close()
