# SPDX-License-Identifier: Apache-2.0
"""One request and one reply, free of any web framework.

Handlers see a :class:`Call` and return a :class:`Reply`; the same handlers therefore serve a plain HTTP request and a
part of a batch. Bodies are streams in both directions: no object is held in memory as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from multidict import CIMultiDict

from localcloud.gcs.storage.errors import GCSError

_JSON_PATH = re.compile(
    "(/storage|/upload/storage|/resumable/upload/storage|/download/storage|/batch/storage)/v1|/batch$"
)
MAX_JSON_BYTES = 4 * 1024 * 1024


class ClientGone(Exception):
    """The client closed the connection before the whole body had arrived: nothing may be committed."""


class CutConnection(Exception):
    """A scripted fault asks for the connection to be cut without an answer."""


async def _unwatched(call: Call) -> None:
    """Do nothing with the names of a request."""


@dataclass
class Call:
    """A request.

    :param method: HTTP verb.
    :param path: percent-encoded path, exactly as sent.
    :param pairs: decoded query parameters in order.
    :param headers: request headers, names in any case.
    :param body: chunks of the request body.
    :param base_url: scheme and host the client used; links and session URLs start with it.
    :param op: what the request does, for example ``objects.insert``; set by the router.
    :param names: decoded names found in the path (``bucket``, ``object``, ...); set by the router.
    :param on_named: called once the names that a request carries in its body are known.
    :param cut_after: a scripted fault cuts the connection behind this many bytes of content, in either direction.
    :param received: bytes of the body so far.
    :param lost: a scripted fault loses the answer.
    """

    method: str
    path: str
    pairs: list[tuple[str, str]]
    headers: CIMultiDict[str]
    body: AsyncIterator[bytes]
    base_url: str
    op: str = ""
    names: dict[str, str] = field(default_factory=dict)
    on_named: Callable[[Call], Awaitable[None]] = _unwatched
    cut_after: int | None = None
    received: int = 0
    lost: bool = False

    def __post_init__(self) -> None:
        self.query: Mapping[str, str] = dict(self.pairs)

    @property
    def bucket(self) -> str:
        """Name of the bucket in the path, or an empty string."""
        return self.names.get("bucket", "")

    @property
    def is_json(self) -> bool:
        """Whether the request came by the JSON interface; all other paths belong to the XML one."""
        return _JSON_PATH.match(self.path) is not None

    @property
    def object(self) -> str:
        """Name of the object in the path or, for uploads, in the query; or an empty string."""
        return self.names.get("object", "") or self.query.get("name", "")

    async def named(self, **names: str) -> None:
        """Add names that were found in the body."""
        self.names.update(names)
        await self.on_named(self)

    def flag(self, name: str) -> bool:
        """Return whether a query parameter is set to true."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str) -> int | None:
        """Return a query parameter as a whole number, or ``None`` if it is absent.

        :raises GCSError: 400 if it is not a number.
        """
        text = self.query.get(name)
        if text is None or text == "":
            return None
        try:
            return int(text)
        except ValueError:
            raise GCSError(400, "invalid", f"Invalid value for {name}: {text!r} is not a number") from None

    async def read(self, limit: int = MAX_JSON_BYTES) -> bytes:
        """Return the whole body of a request that carries no object content.

        :raises GCSError: 413 if it is larger than ``limit`` bytes.
        """
        chunks = bytearray()
        async for chunk in self.body:
            chunks += chunk
            if len(chunks) > limit:
                raise GCSError(413, "uploadTooLarge", f"The request is larger than {limit} bytes")
        return bytes(chunks)

    async def json(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty body is an empty object.

        :raises GCSError: 400 if it is anything else.
        """
        return parse_json(await self.read())


def parse_json(text: bytes) -> dict[str, Any]:
    """Return a JSON object; empty text is an empty object.

    :raises GCSError: 400 if it is anything else.
    """
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise GCSError(400, "parseError", f"Parse Error: {error}") from None
    if not isinstance(value, dict):
        raise GCSError(400, "parseError", "Parse Error: a JSON object is expected")
    return value


@dataclass
class FileBody:
    """A slice of an open file as body of a reply; the sender closes it.

    :param file: positioned anywhere; holding it open keeps the bytes even if the object is deleted meanwhile.
    :param start: first byte to send.
    :param length: how many bytes to send.
    :param gunzip: send the decompressed bytes; the length of the reply is then unknown.
    """

    file: BinaryIO
    start: int
    length: int
    gunzip: bool = False


@dataclass
class Reply:
    """An answer.

    :param status: HTTP status.
    :param headers: response headers.
    :param body: bytes, or a slice of a file.
    """

    status: int = 200
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    body: bytes | FileBody = b""

    def close(self) -> None:
        """Release what a reply that is not sent holds open."""
        if isinstance(self.body, FileBody):
            self.body.file.close()

    @classmethod
    def json(cls, value: Mapping[str, Any], status: int = 200) -> Reply:
        """Return an answer with a JSON body."""
        headers = CIMultiDict({"Content-Type": "application/json; charset=UTF-8"})
        return cls(status, headers, json.dumps(value, ensure_ascii=False).encode())

    @classmethod
    def xml(cls, text: str, status: int = 200) -> Reply:
        """Return an answer with an XML body."""
        headers = CIMultiDict({"Content-Type": "application/xml; charset=UTF-8"})
        return cls(status, headers, b"<?xml version='1.0' encoding='UTF-8'?>" + text.encode())
