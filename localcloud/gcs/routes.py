# SPDX-License-Identifier: Apache-2.0
"""Routes: which handler answers which request.

Paths are matched as sent, before percent-decoding: an object may be called ``a%2Fb`` or ``a/b``, and a normalised path
would be the same for both.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from localcloud.gcs.api import bucket_api, copies, inserts, object_api, upload_api, xml_read
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.store import Store

Handler = Callable[[Store, Call], Awaitable[Reply]]

_B = r"/b/(?P<bucket>[^/]+)"
_O = r"/o/(?P<object>[^/]+)"


@dataclass(frozen=True)
class Route:
    """One line of the routing table.

    :param op: name of the operation, as faults and counters know it.
    :param method: HTTP verb.
    :param path: pattern of the percent-encoded path.
    :param handler: answers the request.
    :param needs: query parameter that must be present, or empty.
    :param xml: whether it belongs to the XML interface.
    """

    op: str
    method: str
    path: re.Pattern[str]
    handler: Handler
    needs: str = ""
    xml: bool = False


def _json(op: str, method: str, path: str, handler: Handler, needs: str = "") -> Route:
    return Route(op, method, re.compile("/storage/v1" + path), handler, needs)


def _upload(op: str, method: str, handler: Handler, needs: str = "") -> Route:
    return Route(op, method, re.compile("(?:/resumable)?/upload/storage/v1" + _B + "/o"), handler, needs)


_TO_BUCKET = r"/b/(?P<to_bucket>[^/]+)"
_TO_OBJECT = r"/o/(?P<to_object>[^/]+)"

# The first route that fits answers.
ROUTES: list[Route] = [
    _upload("uploads.put", "PUT", upload_api.put, "upload_id"),
    _upload("uploads.put", "POST", upload_api.put, "upload_id"),
    _upload("uploads.cancel", "DELETE", upload_api.cancel, "upload_id"),
    _upload("objects.insert", "POST", inserts.insert),
    _json("buckets.insert", "POST", "/b", bucket_api.create),
    _json("buckets.list", "GET", "/b", bucket_api.list_all),
    _json("buckets.get", "GET", _B, bucket_api.get),
    _json("buckets.patch", "PATCH", _B, bucket_api.patch),
    _json("buckets.update", "PUT", _B, bucket_api.patch),
    _json("buckets.delete", "DELETE", _B, bucket_api.delete),
    _json("objects.list", "GET", _B + "/o/?", bucket_api.list_objects),
    _json("objects.compose", "POST", _B + _O + "/compose", copies.compose),
    _json("objects.rewrite", "POST", _B + _O + "/rewriteTo" + _TO_BUCKET + _TO_OBJECT, copies.rewrite),
    _json("objects.copy", "POST", _B + _O + "/copyTo" + _TO_BUCKET + _TO_OBJECT, copies.copy),
    _json("objects.move", "POST", _B + _O + "/moveTo" + _TO_OBJECT, copies.move),
    _json("objects.get", "GET", _B + _O, object_api.get),
    _json("objects.patch", "PATCH", _B + _O, object_api.patch),
    _json("objects.delete", "DELETE", _B + _O, object_api.delete),
    Route("objects.get", "GET", re.compile("/download/storage/v1" + _B + _O), object_api.get),
    Route("objects.media", "GET", re.compile("/(?P<bucket>[^/]+)/(?P<object>.+)", re.S), xml_read.get, xml=True),
]


def route(call: Call) -> Handler:
    """Return the handler of a request, and set the operation and the names in the request.

    :raises GCSError: 404 if there is none, 400 for names that are not UTF-8.
    """
    for line in ROUTES:
        match = line.path.fullmatch(call.path) if line.method == call.method else None
        if match and (not line.needs or line.needs in call.query) and line.xml != call.is_json:
            call.names = {name: decoded(text) for name, text in match.groupdict("").items()}
            call.op = _op(call, line.op)
            return line.handler
    raise GCSError(404, "notFound", f"The local cloud does not know {call.method} {call.path}")


def _op(call: Call, op: str) -> str:
    if op == "objects.get" and call.query.get("alt") == "media":
        return "objects.media"
    if op == "objects.insert" and call.query.get("uploadType") == "resumable":
        return "uploads.start"
    if op == "uploads.put" and call.headers.get("Content-Range", "").startswith("bytes */"):
        return "uploads.status"
    return op


def decoded(text: str) -> str:
    """Return a percent-decoded name.

    :raises GCSError: 400 if it is not UTF-8.
    """
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise GCSError(400, "invalid", f"The name is not UTF-8: {text}") from None
