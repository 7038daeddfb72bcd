# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: turns HTTP requests into calls and replies into HTTP responses."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

from aiohttp import ClientPayloadError, web
from multidict import CIMultiDict

from localcloud.clock import Clock
from localcloud.faults import FaultRegistry
from localcloud.gcs.api import bucket_api
from localcloud.gcs.dispatch import RequestDispatcher
from localcloud.gcs.protocol.wire import Call, ClientGone, CutConnection, FileBody, Reply
from localcloud.gcs.storage.store import Store
from localcloud.rules.project import ProjectRules

_CHUNK = 256 * 1024
# An object name of 1,024 bytes is 3,072 characters when percent-encoded, and a copy names two of them.
_LINE_LIMIT = 64 * 1024


class GCSServer:
    """A small Google Cloud Storage on one port: JSON, upload, download and batch interfaces, and reads by the XML one.

    :param root: folder for database and contents; survives restarts, a killed process included.
    :param clock: gives timestamps, generation numbers and the age of upload sessions.
    :param faults: scripted faults, point ``gcs.request``.
    :param project: project of buckets made by :meth:`create_bucket`.
    :param rules: what that project lacks and what its organisation forbids, None for nothing.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        faults: FaultRegistry,
        project: str = "local-project",
        rules: ProjectRules | None = None,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._store = Store(root, clock)
        self._dispatcher = RequestDispatcher(self._store, clock, faults, rules)
        self._project = project
        self._bytes_in: Counter[str] = Counter()
        self._bytes_out: Counter[str] = Counter()
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, and return the base URL."""
        server = web.Server(
            self._handle,
            access_log=None,
            auto_decompress=False,
            read_bufsize=4 * _CHUNK,
            max_line_size=_LINE_LIMIT,
            max_field_size=_LINE_LIMIT,
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return f"http://{host}:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening and close the database."""
        if self._runner:
            await self._runner.cleanup()
        self._store.close()

    def create_bucket(
        self, name: str, location: str = "US-CENTRAL1", project_number: str = bucket_api.DEFAULT_PROJECT_NUMBER
    ) -> None:
        """Create a bucket, before or after :meth:`start`, from any thread; one that exists stays as it is.

        :raises GCSError: if the name is not allowed.
        """
        bucket_api.ensure(self._store, name, location, self._project, project_number)

    def stats(self) -> dict[str, Any]:
        """Return ``buckets`` (objects, bytes_stored, bytes_in, bytes_out by name) and ``requests`` (by operation)."""
        buckets = bucket_api.usage(self._store)
        moved = {name: {"bytes_in": self._bytes_in[name], "bytes_out": self._bytes_out[name]} for name in buckets}
        merged = {name: {**row, **moved[name]} for name, row in buckets.items()}
        return {"buckets": merged, "requests": dict(self._dispatcher.requests)}

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        call = self._call(request)
        try:
            reply = await self._dispatcher.answer(call)
        except CutConnection:
            return _cut(request)
        except ClientGone:
            return web.Response(status=400)
        return await self._send(request, call, reply)

    def _call(self, request: web.BaseRequest) -> Call:
        path, _, query = request.raw_path.partition("?")
        scheme = request.headers.get("X-Forwarded-Proto", "http")
        headers = CIMultiDict(request.headers)
        pairs = parse_qsl(query, keep_blank_values=True)
        call = Call(request.method, path, pairs, headers, _nothing(), f"{scheme}://{request.host}")
        call.body = self._body(request, call)
        return call

    async def _body(self, request: web.BaseRequest, call: Call) -> AsyncIterator[bytes]:
        try:
            async for chunk in request.content.iter_any():
                self._bytes_in[call.bucket] += len(chunk)
                call.received += len(chunk)
                if call.cut_after is not None and call.received >= call.cut_after:
                    yield chunk[: len(chunk) - (call.received - call.cut_after)]
                    raise CutConnection
                yield chunk
        except (OSError, ClientPayloadError, web.RequestPayloadError) as error:
            raise ClientGone from error

    async def _send(self, request: web.BaseRequest, call: Call, reply: Reply) -> web.StreamResponse:
        if isinstance(reply.body, bytes):
            return web.Response(status=reply.status, headers=reply.headers, body=reply.body)
        with reply.body.file:
            response = web.StreamResponse(status=reply.status, headers=reply.headers)
            if not reply.body.gunzip:
                response.content_length = reply.body.length
            await response.prepare(request)
            if request.method != "HEAD":
                await self._send_file(request, response, call, reply.body)
            await response.write_eof()
        return response

    async def _send_file(
        self, request: web.BaseRequest, response: web.StreamResponse, call: Call, body: FileBody
    ) -> None:
        sent = 0
        for chunk in _chunks(body):
            room = len(chunk) if call.cut_after is None else call.cut_after - sent
            sent += len(chunk)
            self._bytes_out[call.bucket] += len(chunk[:room])
            await response.write(chunk[:room])
            if call.cut_after is not None and sent >= call.cut_after:
                _cut(request)
                return


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def _cut(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        cast(Any, request.transport).abort()
    return web.Response(status=503)


def _chunks(body: FileBody) -> Any:
    body.file.seek(body.start)
    inflate = zlib.decompressobj(wbits=31) if body.gunzip else None
    left = body.length
    while left and (data := body.file.read(min(_CHUNK, left))):
        left -= len(data)
        yield inflate.decompress(data) if inflate else data
