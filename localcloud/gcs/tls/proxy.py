# SPDX-License-Identifier: Apache-2.0
"""A proxy that lets TensorFlow's own ``gs://`` reach the local storage server.

TensorFlow has the host names of Google Cloud Storage compiled in and knows no emulator, but its HTTP library honours
``https_proxy`` and ``CURL_CA_BUNDLE``. So: a CONNECT proxy which ends the TLS of storage hosts itself, with a
certificate of a throw-away authority, and hands the requests to the storage server. The ``Host`` header stays, so that
links and session URLs in the answers keep Google's host and come back through the proxy.

Other hosts of Google are refused, since nothing meant for the local cloud may leak to the real one; everything else is
tunnelled untouched.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from localcloud.gcs.tls.certificates import server_context
from localcloud.gcs.tls.http_relay import HEAD_LIMIT, ProtocolError, Stream, read_head, relay

HOSTS = ["storage.googleapis.com", "www.googleapis.com"]
_COPY = 64 * 1024
_log = logging.getLogger(__name__)


class TLSFront:
    """The proxy.

    :param folder: certificates are written there, new ones at each start.
    :param backend: base URL of the storage server, for example ``http://127.0.0.1:4443``.
    """

    def __init__(self, folder: Path, backend: str) -> None:
        self._context, self.ca_file = server_context(folder, HOSTS)
        parts = urlsplit(backend)
        self._backend = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.proxy = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, and return the proxy's URL."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=HEAD_LIMIT)
        self.proxy = f"http://{host}:{self._server.sockets[0].getsockname()[1]}"
        return self.proxy

    def environment(self) -> dict[str, str]:
        """Return the environment that sends TensorFlow's ``gs://`` here."""
        return {"https_proxy": self.proxy, "CURL_CA_BUNDLE": str(self.ca_file), "NO_GCE_CHECK": "true"}

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(Stream(reader, writer)))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, client: Stream) -> None:
        try:
            head = await read_head(client.reader)
            if head is not None:
                await self._connect(client, head.first)
        except (OSError, ProtocolError, ssl.SSLError) as error:
            _log.debug("Connection ended: %s", error)
        finally:
            client.writer.close()

    async def _connect(self, client: Stream, first: str) -> None:
        method, _, target = first.partition(" ")
        host, _, port = target.partition(" ")[0].rpartition(":")
        if method != "CONNECT" or not port.isdigit():
            await _answer(client, "405 Only CONNECT is spoken here")
        elif host in HOSTS:
            await _answer(client, "200 Connection established")
            await client.writer.start_tls(self._context)
            await self._relay(client)
        elif host == "googleapis.com" or host.endswith(".googleapis.com"):
            await _answer(client, "403 This host of Google has no local stand-in")
        else:
            await _tunnel(client, host.strip("[]"), int(port))

    async def _relay(self, client: Stream) -> None:
        server = Stream(*await asyncio.open_connection(*self._backend, limit=HEAD_LIMIT))
        try:
            await relay(client, server)
        finally:
            server.writer.close()


async def _answer(client: Stream, status: str) -> None:
    client.writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
    await client.writer.drain()


async def _tunnel(client: Stream, host: str, port: int) -> None:
    try:
        server = Stream(*await asyncio.open_connection(host, port))
    except OSError as error:
        await _answer(client, f"502 {host}:{port} is not reachable ({type(error).__name__})")
        return
    try:
        await _answer(client, "200 Connection established")
        await asyncio.gather(_pump(client.reader, server.writer), _pump(server.reader, client.writer))
    finally:
        server.writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_COPY):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
