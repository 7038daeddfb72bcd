# SPDX-License-Identifier: Apache-2.0
"""Batch requests: many small calls in one body.

gcsfs removes objects by them, and so does every framework that writes to ``gs://`` through fsspec.
https://cloud.google.com/storage/docs/batch: up to 100 calls, none of which carries content.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from multidict import CIMultiDict

from localcloud.gcs.protocol.multipart import RelatedReader, boundary_of
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage.errors import GCSError

MAX_CALLS = 100
PATH = re.compile("/batch(/storage/v1)?")
Answer = Callable[[Call], Awaitable[Reply]]


async def answer_all(answer: Answer, call: Call) -> Reply:
    """Answer every call of a batch by ``answer``, in order.

    :raises GCSError: 400 if the body is malformed or holds too many calls.
    """
    boundary = f"batch_{secrets.token_urlsafe(16)}"
    pieces = [await _one(answer, call, part_id, text) for part_id, text in await _parts(call)]
    body = b"".join(b"--" + boundary.encode() + b"\r\n" + piece + b"\r\n" for piece in pieces)
    headers = CIMultiDict({"Content-Type": f"multipart/mixed; boundary={boundary}"})
    return Reply(200, headers, body + b"--" + boundary.encode() + b"--\r\n")


async def _parts(call: Call) -> list[tuple[str, bytes]]:
    reader = RelatedReader(call.body, boundary_of(call.headers.get("Content-Type", "")))
    await reader.start()
    parts: list[tuple[str, bytes]] = []
    while not reader.done:
        headers = await reader.headers()
        parts.append((headers.get("content-id", ""), await reader.small_part()))
    if len(parts) > MAX_CALLS:
        raise GCSError(400, "invalid", f"A batch may hold {MAX_CALLS} calls at most, not {len(parts)}")
    return parts


async def _one(answer: Answer, outer: Call, part_id: str, text: bytes) -> bytes:
    reply = await answer(_inner(outer, text))
    body = reply.body if isinstance(reply.body, bytes) else b""
    head = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
    head += [f"{key}: {value}" for key, value in reply.headers.items()] + [f"Content-Length: {len(body)}"]
    outer_head = ["Content-Type: application/http"]
    if part_id:
        outer_head.append(f"Content-ID: <response-{part_id.strip('<>')}>")
    return "\r\n".join([*outer_head, "", *head, "", ""]).encode() + body


def _inner(outer: Call, text: bytes) -> Call:
    """Read one call: request line, headers, blank line, body; lines may end with LF alone."""
    head, body = _split_head(text.lstrip(b"\r\n"))
    lines = head.decode("utf-8", "replace").splitlines()
    words = lines[0].split() if lines else []
    if len(words) < 2:
        raise GCSError(400, "badRequest", "A part of the batch is not an HTTP request")
    url = urlsplit(words[1])
    if not url.path.startswith("/storage/v1/") or "alt=media" in url.query:
        raise GCSError(400, "badRequest", f"Not allowed in a batch: {words[1]}")
    named = (line.partition(":") for line in lines[1:])
    headers = CIMultiDict([(name.strip(), value.strip()) for name, _, value in named])
    pairs = parse_qsl(url.query, keep_blank_values=True)
    return Call(words[0], url.path, pairs, headers, _stream(body), outer.base_url)


def _split_head(text: bytes) -> tuple[bytes, bytes]:
    match = re.search(rb"\r?\n\r?\n", text)
    return (text[: match.start()], text[match.end() :]) if match else (text, b"")


async def _stream(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body
