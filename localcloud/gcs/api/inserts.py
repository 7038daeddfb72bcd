# SPDX-License-Identifier: Apache-2.0
"""Upload of an object in one request: plain content, or metadata and content together."""

from __future__ import annotations

from collections.abc import AsyncIterator

from localcloud.gcs.api import uploads
from localcloud.gcs.api.resources import object_resource
from localcloud.gcs.protocol.multipart import RelatedReader, boundary_of
from localcloud.gcs.protocol.wire import Call, Reply, parse_json
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.digests import Claims
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.objects import Draft, Generation
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

DEFAULT_TYPE = "application/octet-stream"


async def insert(store: Store, call: Call) -> Reply:
    """Answer POST on ``/upload/storage/v1/b/BUCKET/o``, which comes in three types.

    :raises GCSError: 400, 404 or 412.
    """
    kind = call.query.get("uploadType", "")
    if kind == "resumable":
        return await uploads.start_json(store, call)
    if kind == "media":
        row = await _insert_media(store, call)
    elif kind == "multipart":
        row = await _insert_multipart(store, call)
    else:
        raise GCSError(400, "invalid", f"Invalid value for uploadType: {kind!r}")
    return Reply.json(object_resource(row, call.base_url))


async def _insert_media(store: Store, call: Call) -> Generation:
    meta = {
        "contentType": call.headers.get("Content-Type", DEFAULT_TYPE),
        "contentEncoding": call.query.get("contentEncoding"),
    }
    draft = Draft(call.bucket, call.object, meta, Preconditions.of_query(call.query))
    return await receive(store, draft, Claims.of({}, call.headers.items()), call.body)


async def _insert_multipart(store: Store, call: Call) -> Generation:
    reader = RelatedReader(call.body, boundary_of(call.headers.get("Content-Type", "")))
    await reader.start()
    await reader.headers()
    meta = parse_json(await reader.small_part())
    media = await reader.headers()
    meta.setdefault("contentType", media.get("content-type", DEFAULT_TYPE))
    name = await uploads.note_name(call, meta)
    draft = Draft(call.bucket, name, meta, Preconditions.of_query(call.query))
    return await receive(store, draft, Claims.of(meta, call.headers.items()), reader.part())


async def receive(store: Store, draft: Draft, claims: Claims, body: AsyncIterator[bytes]) -> Generation:
    """Store a body as a new generation, or leave nothing behind.

    :raises GCSError: 400 if a hash does not match, 404 or 412.
    """
    objects.check(store, draft)
    with store.blobs.writing() as writer:
        await writer.write_all(body)
        claims.check(writer.digest)
        return objects.commit(store, draft, writer.content())
