"""Multipart uploads of the XML interface: parts in parallel and in any order, joined at the end.

https://cloud.google.com/storage/docs/multipart-uploads. The joined object has no MD5. Preconditions do not exist here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import xml.etree.ElementTree as ET
from contextlib import ExitStack
from dataclasses import replace
from xml.sax.saxutils import escape

from localcloud.gcs.api import uploads
from localcloud.gcs.api.xml_api import draft_of, identity
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.digests import Claims
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.objects import Draft
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

MIN_PART = 5 * 1024 * 1024
MAX_PARTS = 10_000
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


async def start(store: Store, call: Call) -> Reply:
    """Answer POST with ``?uploads``.

    :raises GCSError: 400 or 404.
    """
    await call.read()
    draft = draft_of(call)
    objects.check(store, draft)
    upload = uploads.enter(store, "multipart", replace(draft, conditions=Preconditions()))
    ids = f"<Bucket>{draft.bucket}</Bucket><Key>{escape(draft.name)}</Key><UploadId>{upload}</UploadId>"
    return Reply.xml(f'<InitiateMultipartUploadResult xmlns="{_NAMESPACE}">{ids}</InitiateMultipartUploadResult>')


async def put_part(store: Store, call: Call) -> Reply:
    """Answer PUT with ``?partNumber=N&uploadId=ID``; a part sent again replaces the former.

    :raises GCSError: 400 or 404.
    """
    upload = _find(store, call)
    number = call.number("partNumber") or 0
    if not 1 <= number <= MAX_PARTS:
        raise GCSError(400, "invalid", f"Part number must be from 1 to {MAX_PARTS}")
    with store.blobs.writing() as writer:
        await writer.write_all(call.body)
        Claims.of({}, call.headers.items()).check(writer.digest)
        content = writer.content()
        with store.transaction():
            _find(store, call)
            _forget_part(store, upload, number)
            row = {"upload": upload, "number": number, "size": content.size, "md5": content.md5, "blob": content.blob}
            store.insert("parts", row)
    reply = Reply()
    reply.headers["ETag"] = _etag(str(content.md5))
    reply.headers["X-Goog-Hash"] = f"crc32c={content.crc32c},md5={content.md5}"
    return reply


async def complete(store: Store, call: Call) -> Reply:
    """Answer POST with ``?uploadId=ID``: the parts named in the body become the object.

    :raises GCSError: 400 if a part is unknown, out of order or, unless it is the last, too small; 404.
    """
    upload = _find(store, call)
    blobs = _chosen(store, upload, await call.read())
    with ExitStack() as stack:
        files = [stack.enter_context(store.blobs.open(blob)) for blob in blobs]
        content = await asyncio.to_thread(store.blobs.join, files)
    with store.blobs.owned(content.blob), store.transaction():
        row = store.query("SELECT * FROM uploads WHERE id = ?", _find(store, call))[0]
        draft = Draft(row["bucket"], row["name"], json.loads(row["meta"]), Preconditions())
        made = objects.commit(store, draft, replace(content, md5=None))
        _forget(store, upload)
    key = f"<Bucket>{made.bucket}</Bucket><Key>{escape(made.name)}</Key>"
    reply = Reply.xml(f'<CompleteMultipartUploadResult xmlns="{_NAMESPACE}">{key}</CompleteMultipartUploadResult>')
    reply.headers.update(identity(made))
    return reply


async def abort(store: Store, call: Call) -> Reply:
    """Answer DELETE with ``?uploadId=ID``.

    :raises GCSError: 404.
    """
    with store.transaction():
        _forget(store, _find(store, call))
    return Reply(204)


def _find(store: Store, call: Call) -> str:
    sql = "SELECT id FROM uploads WHERE id = ? AND bucket = ? AND name = ? AND kind = 'multipart'"
    upload = call.query.get("uploadId", "")
    if store.one(sql, upload, call.bucket, call.object) is None:
        raise GCSError(404, "notFound", "The requested upload was not found.", "NoSuchUpload")
    return upload


def _chosen(store: Store, upload: str, body: bytes) -> list[str]:
    rows = {row["number"]: row for row in store.query("SELECT * FROM parts WHERE upload = ?", upload)}
    wanted = _parse(body)
    numbers = [number for number, _ in wanted]
    if not numbers or numbers != sorted(set(numbers)):
        raise GCSError(400, "invalid", "Parts must be listed once each, in ascending order.", "InvalidPartOrder")
    for number, tag in wanted:
        if number not in rows or tag.strip('"') != _etag(rows[number]["md5"]).strip('"'):
            raise GCSError(400, "invalid", f"Part {number} was not found or has another ETag.", "InvalidPart")
        if rows[number]["size"] < MIN_PART and number != numbers[-1]:
            raise GCSError(400, "invalid", f"Part {number} is smaller than {MIN_PART} bytes.", "EntityTooSmall")
    return [rows[number]["blob"] for number in numbers]


def _parse(body: bytes) -> list[tuple[int, str]]:
    try:
        root = ET.fromstring(body)  # noqa: S314 - size is bounded, and expat itself refuses entity bombs since 2.4.1
        parts = [{child.tag.rpartition("}")[2]: child.text or "" for child in part} for part in root]
        return [(int(part["PartNumber"]), part["ETag"]) for part in parts]
    except (ET.ParseError, KeyError, ValueError):
        raise GCSError(400, "parseError", "The XML you provided was not well-formed.") from None


def _etag(md5: str) -> str:
    return f'"{base64.b64decode(md5).hex()}"'


def _forget_part(store: Store, upload: str, number: int) -> None:
    old = store.one("SELECT blob FROM parts WHERE upload = ? AND number = ?", upload, number)
    if old:
        store.query("DELETE FROM parts WHERE upload = ? AND number = ?", upload, number)
        store.discard(old["blob"])


def _forget(store: Store, upload: str) -> None:
    store.discard(*(row["blob"] for row in store.query("SELECT blob FROM parts WHERE upload = ?", upload)))
    store.query("DELETE FROM parts WHERE upload = ?", upload)
    store.query("DELETE FROM uploads WHERE id = ?", upload)
