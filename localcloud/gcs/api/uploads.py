# SPDX-License-Identifier: Apache-2.0
"""Resumable upload sessions: state and protocol.

Protocol: https://cloud.google.com/storage/docs/resumable-uploads and .../docs/performing-resumable-uploads. What has
arrived survives a restart of the server; so does the answer of a finished session, which a client that lost it asks
for again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.blobs import Content
from localcloud.gcs.storage.digests import Claims
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.objects import Draft, Generation
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.session_writer import SessionWriter
from localcloud.gcs.storage.store import Store

SESSION_LIFE = timedelta(days=7)


@dataclass(frozen=True)
class Session:
    """One resumable upload.

    :param id: secret that names it.
    :param draft: the object to be.
    :param declared: size announced at the start, or ``None``.
    :param received: how many bytes are kept.
    :param blob: file they are in.
    :param generation: of the finished object, or ``None``.
    """

    id: str
    draft: Draft
    declared: int | None
    received: int
    blob: str
    generation: int | None

    @classmethod
    def of_row(cls, row: sqlite3.Row) -> Session:
        """Read a database row."""
        conditions = Preconditions.of_text(row["conditions"])
        draft = Draft(row["bucket"], row["name"], json.loads(row["meta"]), conditions)
        return cls(row["id"], draft, row["declared"], row["received"], row["blob"] or "", row["generation"])


def start(store: Store, draft: Draft, declared: int | None) -> Session:
    """Open a session.

    :raises GCSError: 400, 404 or 412: preconditions are checked here and again when the upload is finished.
    """
    objects.check(store, draft)
    writer = store.blobs.create()
    writer.close()
    row: dict[str, Any] = {
        "id": secrets.token_urlsafe(48),
        "bucket": draft.bucket,
        "name": draft.name,
        "meta": json.dumps(dict(draft.meta)),
        "conditions": draft.conditions.as_text(),
        "declared": declared,
        "received": 0,
        "blob": writer.blob,
        "created": store.now().isoformat(),
    }
    store.insert("uploads", row)
    return find(store, row["id"])


def find(store: Store, upload_id: str) -> Session:
    """Return a session.

    :raises GCSError: 404 if there is none of that id, 410 if it is older than a week.
    """
    row = store.one("SELECT * FROM uploads WHERE id = ?", upload_id)
    if row is None:
        raise GCSError(404, "notFound", "No such upload session")
    if store.now() - datetime.fromisoformat(row["created"]) > SESSION_LIFE:
        raise GCSError(410, "gone", "The upload session has expired")
    return Session.of_row(row)


def drop(store: Store, session: Session) -> None:
    """Forget a session and what it received; a request that is still writing into it is cut off."""
    writer = store.writers.pop(session.id, None)
    if writer:
        writer.close()
    with store.transaction():
        store.query("DELETE FROM uploads WHERE id = ?", session.id)
        if session.generation is None:
            store.discard(session.blob)
    store.digests.pop(session.id, None)


async def warm_up(store: Store, upload_id: str) -> None:
    """Hash what a session holds unless its hash is known: after a restart that can take a while, so in a thread."""
    session = find(store, upload_id)
    if session.generation is None and session.id not in store.digests:
        digest = await asyncio.to_thread(store.blobs.digest, session.blob, session.received)
        store.digests.setdefault(session.id, digest)


def open_writer(store: Store, session: Session, skip: int) -> SessionWriter:
    """Start writing behind what a session holds; a request that was writing before is cut off."""
    digest = store.digests.get(session.id)
    if digest is None or digest.size != session.received:
        digest = store.blobs.digest(session.blob, session.received)
    writer = SessionWriter(store.blobs.append(session.blob, digest), skip)
    store.writers[session.id] = writer
    return writer


def settle(store: Store, session: Session, writer: SessionWriter, complete: bool = False) -> Session:
    """End a writer and record what is kept; one that has been cut off already changes nothing."""
    if store.writers.get(session.id) is writer:
        del store.writers[session.id]
        digest = writer.close(complete)
        store.digests[session.id] = digest
        store.query("UPDATE uploads SET received = ? WHERE id = ?", digest.size, session.id)
    return find(store, session.id)


def take_over(store: Store, session: Session) -> Session:
    """Cut off the request that is still writing into a session, if there is one, keeping what is safe of it."""
    writer = store.writers.get(session.id)
    return settle(store, session, writer) if writer else session


def finish(store: Store, session: Session, claims: Claims) -> Generation:
    """Turn a complete session into an object.

    :raises GCSError: 400 if a hash does not match, 404 or 412; the session is over then.
    """
    digest = store.digests.get(session.id) or store.blobs.digest(session.blob, session.received)
    try:
        claims.check(digest)
        with store.transaction():
            content = Content(session.blob, digest.size, digest.md5, digest.crc32c)
            row = objects.commit(store, session.draft, content)
            store.query("UPDATE uploads SET generation = ?, blob = NULL WHERE id = ?", row.generation, session.id)
    except GCSError:
        drop(store, session)
        raise
    store.digests.pop(session.id, None)
    return row


def claims_of(session: Session, headers: Mapping[str, str]) -> Claims:
    """Gather hashes sent when the session was opened and with the last request."""
    return Claims.of(session.draft.meta, headers.items())


async def start_json(store: Store, call: Call) -> Reply:
    """Answer the request of the JSON interface that opens a session.

    :raises GCSError: 400, 404 or 412.
    """
    meta = await call.json()
    meta.setdefault("contentType", call.headers.get("X-Upload-Content-Type", "application/octet-stream"))
    name = await note_name(call, meta)
    draft = Draft(call.bucket, name, meta, Preconditions.of_query(call.query))
    declared = call.headers.get("X-Upload-Content-Length", "")
    session = start(store, draft, int(declared) if declared.isdigit() else None)
    reply = Reply()
    place = f"{call.base_url}/upload/storage/v1/b/{quote(call.bucket, safe='')}/o"
    reply.headers["Location"] = f"{place}?uploadType=resumable&name={quote(name, safe='')}&upload_id={session.id}"
    reply.headers["X-GUploader-UploadID"] = session.id
    return reply


async def note_name(call: Call, meta: Mapping[str, Any]) -> str:
    """Return the name of the object to be; one in the query wins over one in the metadata."""
    if not call.query.get("name"):
        await call.named(object=str(meta.get("name") or ""))
    return call.object
