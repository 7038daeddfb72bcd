"""Requests on an open resumable session: content, status query, cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from localcloud.gcs import objects, uploads
from localcloud.gcs.blobs import BlobWriter
from localcloud.gcs.errors import GCSError
from localcloud.gcs.ranges import ContentRange
from localcloud.gcs.resources import object_resource
from localcloud.gcs.store import Store
from localcloud.gcs.uploads import Session
from localcloud.gcs.wire import Call, ClientGone, Reply

# Content is kept in multiples of this, except at the end of the object.
QUANTUM = 256 * 1024


async def put(store: Store, call: Call) -> Reply:
    """Answer PUT (or POST) on a session URL.

    :raises GCSError: 400, 404, 410, 412, or 503 if the content does not follow what has been kept.
    """
    session = uploads.find(store, call.query.get("upload_id", ""))
    place = ContentRange.parse(call.headers.get("Content-Range"))
    if session.generation is not None:
        await _drain(call.body)
        return _finished(store, call, session)
    total = _total(session, place)
    if place.first is None:
        await _drain(call.body)
    else:
        session = await _receive(store, call, session, place)
        if place.whole:
            total = session.received
    if total is None or session.received < total:
        return incomplete(session)
    if session.received > total:
        raise GCSError(400, "invalid", f"{session.received} bytes were sent for an object of {total}")
    return await _finish(store, call, session)


async def cancel(store: Store, call: Call) -> Reply:
    """Answer DELETE on a session URL.

    :raises GCSError: 404 or 410.
    """
    session = uploads.find(store, call.query.get("upload_id", ""))
    uploads.drop(store, session)
    return Reply(499)


def incomplete(session: Session) -> Reply:
    """Return the answer to a session that wants more: 308, with the range kept so far, if any."""
    reply = Reply(308)
    reply.headers["X-GUploader-UploadID"] = session.id
    if session.received:
        reply.headers["Range"] = f"bytes=0-{session.received - 1}"
    return reply


def _finished(store: Store, call: Call, session: Session) -> Reply:
    row = objects.find(store, session.draft.bucket, session.draft.name, session.generation)
    return Reply.json(object_resource(row, call.base_url))


def _total(session: Session, place: ContentRange) -> int | None:
    if None not in (session.declared, place.total) and session.declared != place.total:
        raise GCSError(400, "invalid", f"Size {place.total} differs from the announced {session.declared}")
    return place.total


async def _drain(body: AsyncIterator[bytes]) -> None:
    async for _ in body:
        pass


async def _receive(store: Store, call: Call, session: Session, place: ContentRange) -> Session:
    """Keep what arrives behind what is kept already; a repeated stretch is skipped, not written twice."""
    overlap = session.received - cast(int, place.first)
    if overlap < 0:
        raise GCSError(503, "backendError", f"Content starts at {place.first}, expected at {session.received}")
    before = session.received
    writer = store.blobs.append(session.blob, await uploads.digest_of(store, session))
    try:
        await _write_behind(call, writer, overlap)
    except ClientGone:
        _settle(store, session, writer, before)
        raise
    complete = place.whole or writer.digest.size == place.total
    if not complete and writer.digest.size - before + overlap < QUANTUM:
        writer.close()
        store.digests.pop(session.id, None)
        raise _too_small(writer.digest.size - before + overlap)
    return _settle(store, session, writer, before, complete)


async def _write_behind(call: Call, writer: BlobWriter, skip: int) -> None:
    async for chunk in call.body:
        writer.write(chunk[skip:] if skip else chunk)
        skip = max(0, skip - len(chunk))


def _settle(store: Store, session: Session, writer: BlobWriter, before: int, complete: bool = False) -> Session:
    """Close the file and keep whole multiples of the quantum, or all of it if the object is complete."""
    writer.close()
    size = writer.digest.size
    return uploads.keep(store, session, size if complete else max(before, size - size % QUANTUM))


def _too_small(size: int) -> GCSError:
    text = (
        f"Invalid request. The number of bytes uploaded is required to be equal or greater than {QUANTUM}, except for "
        "the final request (it's recommended to be the exact multiple of it). "
        f"The received request contained {size} bytes, which does not meet this requirement."
    )
    return GCSError(400, "badRequest", text)


async def _finish(store: Store, call: Call, session: Session) -> Reply:
    digest = await uploads.digest_of(store, session)
    row = uploads.finish(store, session, digest, uploads.claims_of(session, call.headers))
    return Reply.json(object_resource(row, call.base_url))
