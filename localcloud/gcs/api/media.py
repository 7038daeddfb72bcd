# SPDX-License-Identifier: Apache-2.0
"""Reading content: whole, by range, and decompressed for clients that do not take gzip."""

from __future__ import annotations

from datetime import datetime
from email.utils import format_datetime

from multidict import CIMultiDict

from localcloud.gcs.api.resources import etag
from localcloud.gcs.protocol.ranges import read_range
from localcloud.gcs.protocol.wire import Call, FileBody, Reply
from localcloud.gcs.storage.objects import Generation
from localcloud.gcs.storage.store import Store

FIELDS = {
    "contentType": "Content-Type",
    "contentEncoding": "Content-Encoding",
    "contentDisposition": "Content-Disposition",
    "contentLanguage": "Content-Language",
    "cacheControl": "Cache-Control",
}
"""Headers of HTTP itself that are kept with an object, by their names in its metadata."""


def read(store: Store, call: Call, row: Generation) -> Reply:
    """Return the content of a generation, or the slice the request asks for.

    :raises GCSError: 416 if the range lies outside it.
    """
    headers = headers_of(row)
    if _wants_plain(call, row):
        # https://cloud.google.com/storage/docs/transcoding: the range is ignored and the length not known beforehand.
        del headers["Content-Encoding"]
        headers["Warning"] = "214 UploadServer gunzipped"
        return Reply(200, headers, FileBody(store.blobs.open(row.content.blob), 0, row.content.size, gunzip=True))
    wanted = read_range(call.headers.get("Range"), row.content.size)
    start, length = wanted or (0, row.content.size)
    if wanted:
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{row.content.size}"
    return Reply(206 if wanted else 200, headers, FileBody(store.blobs.open(row.content.blob), start, length))


def _wants_plain(call: Call, row: Generation) -> bool:
    accepts = "gzip" in call.headers.get("Accept-Encoding", "").lower()
    stored = row.meta.get("contentEncoding") == "gzip"
    return stored and not accepts and "no-transform" not in str(row.meta.get("cacheControl", ""))


def headers_of(row: Generation) -> CIMultiDict[str]:
    """Return the response headers that describe a generation."""
    content = row.content
    hashes = f"crc32c={content.crc32c}" + (f",md5={content.md5}" if content.md5 else "")
    headers = CIMultiDict(
        {
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
            "ETag": etag(row.generation, row.metageneration),
            "Last-Modified": format_datetime(datetime.fromisoformat(row.updated), usegmt=True),
            "X-Goog-Generation": str(row.generation),
            "X-Goog-Metageneration": str(row.metageneration),
            "X-Goog-Hash": hashes,
            "X-Goog-Storage-Class": str(row.meta.get("storageClass", "STANDARD")),
            "X-Goog-Stored-Content-Encoding": str(row.meta.get("contentEncoding", "identity")),
            "X-Goog-Stored-Content-Length": str(content.size),
        }
    )
    headers.update({header: str(row.meta[key]) for key, header in FIELDS.items() if row.meta.get(key)})
    headers.update({f"X-Goog-Meta-{key}": str(value) for key, value in (row.meta.get("metadata") or {}).items()})
    if content.components:
        headers["X-Goog-Component-Count"] = str(content.components)
    return headers
