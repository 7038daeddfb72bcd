# SPDX-License-Identifier: Apache-2.0
"""Requests on an open resumable session: content, status query, cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator

from localcloud.gcs.api import uploads
from localcloud.gcs.api.resources import object_resource
from localcloud.gcs.api.uploads import Session
from localcloud.gcs.protocol.ranges import ContentRange
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.session_writer import QUANTUM
from localcloud.gcs.storage.store import Store


async def put(store: Store, call: Call) -> Reply:
    """Answer PUT (or POST) on a session URL.

    :raises GCSError: 400, 404, 410, 412, or 503 if the content does not follow what has been kept.
    """
    place = ContentRange.parse(call.headers.get("Content-Range"))
    if place.first is None:
        await _drain(call.body)
    await uploads.warm_up(store, call.query.get("upload_id", ""))
    session = uploads.take_over(store, uploads.find(store, call.query["upload_id"]))
    if session.generation is None and place.first is not None:
        session = await _receive(store, call, session, place)
    return _conclude(store, call, session, place)


def _conclude(store: Store, call: Call, session: Session, place: ContentRange) -> Reply:
    if session.generation is not None:
        return _finished(store, call, session)
    total = _total(session, place)
    if total is None or session.received < total:
        return incomplete(session)
    if session.received > total:
        raise GCSError(400, "invalid", f"{session.received} bytes were sent for an object of {total}")
    row = uploads.finish(store, session, uploads.claims_of(session, call.headers))
    return Reply.json(object_resource(row, call.base_url))


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
    if place.whole:
        return session.received if session.declared is None else session.declared
    return place.total


async def _drain(body: AsyncIterator[bytes]) -> None:
    async for _ in body:
        pass


async def _receive(store: Store, call: Call, session: Session, place: ContentRange) -> Session:
    """Keep what arrives behind what is kept already; a repeated stretch is skipped, not written twice."""
    overlap = session.received - (place.first or 0)
    if overlap < 0:
        raise GCSError(503, "backendError", f"Content starts at {place.first}, expected at {session.received}")
    writer = uploads.open_writer(store, session, overlap)
    try:
        await writer.write_all(call.body)
    except BaseException:
        uploads.settle(store, session, writer)
        raise
    complete = place.whole or writer.size == place.total
    kept = uploads.settle(store, session, writer, complete)
    if not complete and writer.carried < QUANTUM:
        raise _too_small(writer.carried)
    return kept


def _too_small(size: int) -> GCSError:
    text = (
        f"Invalid request. The number of bytes uploaded is required to be equal or greater than {QUANTUM}, except for "
        "the final request (it's recommended to be the exact multiple of it). "
        f"The received request contained {size} bytes, which does not meet this requirement."
    )
    return GCSError(400, "badRequest", text)
