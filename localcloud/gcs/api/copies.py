# SPDX-License-Identifier: Apache-2.0
"""Objects made from other objects.

compose: TensorFlow appends with it, gcsfs merges. rewrite: the runner, TensorFlow and gcsfs copy with it. move: gcsfs.
copy: google-cloud-storage.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from localcloud.gcs.api.resources import object_resource
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.blobs import Content
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.objects import Draft, Generation
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

# https://cloud.google.com/storage/docs/composite-objects
MAX_SOURCES = 32


async def compose(store: Store, call: Call) -> Reply:
    """Answer POST on ``.../o/OBJECT/compose``: join up to 32 objects of the same bucket.

    :raises GCSError: 400, 404 or 412.
    """
    body = await call.json()
    draft = Draft(call.bucket, call.object, body.get("destination") or {}, Preconditions.of_query(call.query))
    objects.check(store, draft)
    sources = _sources(store, call.bucket, body.get("sourceObjects") or [])
    content = await _joined(store, sources)
    with store.blobs.owned(content.blob), store.transaction():
        row = objects.commit(store, draft, content)
        if body.get("deleteSourceObjects"):
            _delete_sources(store, row, sources)
    return Reply.json(object_resource(row, call.base_url))


def _delete_sources(store: Store, made: Generation, sources: list[Generation]) -> None:
    for source in sources:
        if source.name != made.name and objects.live(store, source.bucket, source.name) == source:
            objects.delete(store, source.bucket, source.name, None, Preconditions())


def _sources(store: Store, bucket: str, entries: list[dict[str, Any]]) -> list[Generation]:
    if not 1 <= len(entries) <= MAX_SOURCES:
        text = f"The number of source components provided ({len(entries)}) must be from 1 to {MAX_SOURCES}"
        raise GCSError(400, "invalid", text)
    return [_source(store, bucket, entry) for entry in entries]


def _source(store: Store, bucket: str, entry: dict[str, Any]) -> Generation:
    generation = entry.get("generation")
    row = objects.find(store, bucket, str(entry.get("name", "")), int(generation) if generation else None)
    wanted = (entry.get("objectPreconditions") or {}).get("ifGenerationMatch")
    Preconditions(generation=None if wanted is None else int(wanted)).check_write(row)
    return row


async def _joined(store: Store, sources: list[Generation]) -> Content:
    """Return the joined content; the sources are opened first, so that a delete meanwhile does no harm."""
    with ExitStack() as stack:
        files = [stack.enter_context(store.blobs.open(row.content.blob)) for row in sources]
        content = await asyncio.to_thread(store.blobs.join, files)
    return replace(content, md5=None, components=sum(row.content.components or 1 for row in sources))


async def rewrite(store: Store, call: Call) -> Reply:
    """Answer POST on ``.../rewriteTo/...``; every rewrite is done in one step, as Google's are within a location.

    :raises GCSError: 400, 404 or 412.
    """
    row = await _copied(store, call)
    size = str(row.content.size)
    sizes = {"totalBytesRewritten": size, "objectSize": size, "done": True}
    return Reply.json({"kind": "storage#rewriteResponse", **sizes, "resource": object_resource(row, call.base_url)})


async def copy(store: Store, call: Call) -> Reply:
    """Answer POST on ``.../copyTo/...``.

    :raises GCSError: 400, 404 or 412.
    """
    return Reply.json(object_resource(await _copied(store, call), call.base_url))


async def move(store: Store, call: Call) -> Reply:
    """Answer POST on ``.../moveTo/o/OBJECT``: within one bucket, wholly or not at all.

    :raises GCSError: 400, 404 or 412.
    """
    with store.transaction():
        source = _checked_source(store, call)
        row = _copy(store, call, source, call.bucket, {})
        objects.delete(store, source.bucket, source.name, None, Preconditions(generation=source.generation))
    return Reply.json(object_resource(row, call.base_url))


async def _copied(store: Store, call: Call) -> Generation:
    body = await call.json()
    return _copy(store, call, _checked_source(store, call), call.names["to_bucket"], body)


def _checked_source(store: Store, call: Call) -> Generation:
    row = objects.find(store, call.bucket, call.object, call.number("sourceGeneration"))
    Preconditions.of_source(call.query).check_write(row)
    return row


def _copy(store: Store, call: Call, source: Generation, bucket: str, body: dict[str, Any]) -> Generation:
    """Commit a copy; metadata in the request replaces that of the source, none at all keeps it."""
    asked = objects.settable(body)
    meta = {"contentType": source.meta.get("contentType"), **asked} if asked else source.meta
    draft = Draft(bucket, call.names["to_object"], meta, Preconditions.of_query(call.query))
    objects.check(store, draft)
    blob = store.blobs.copy(source.content.blob)
    with store.blobs.owned(blob):
        return objects.commit(store, draft, replace(source.content, blob=blob))
