# SPDX-License-Identifier: Apache-2.0
"""Objects: their generations, and every change of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.gcs.storage import buckets, errors, soft_delete
from localcloud.gcs.storage.blobs import Content
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.names import check_object_name
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

# What a client may set on an object; all else is derived or ignored.
SETTABLE = frozenset(
    {"contentType", "contentEncoding", "contentDisposition", "contentLanguage", "cacheControl", "customTime"}
    | {"metadata", "storageClass", "eventBasedHold", "temporaryHold"}
)

# Set by the server alone, from the default key of the bucket.
KMS_KEY = "kmsKeyName"


@dataclass(frozen=True)
class Generation:
    """One generation of one object.

    :param bucket: name of its bucket.
    :param name: its name.
    :param generation: unique number of the content.
    :param metageneration: grows with every change of the metadata.
    :param live: whether it is the current one.
    :param content: the bytes and their hashes.
    :param created: RFC 3339.
    :param updated: RFC 3339, of the metadata.
    :param deleted: when it became noncurrent, or ``None``.
    :param meta: what clients may set.
    """

    bucket: str
    name: str
    generation: int
    metageneration: int
    live: bool
    content: Content
    created: str
    updated: str
    deleted: str | None
    meta: dict[str, Any]

    @classmethod
    def of_row(cls, row: sqlite3.Row) -> Generation:
        """Read a database row."""
        content = Content(row["blob"], row["size"], row["md5"], row["crc32c"], row["components"])
        return cls(
            bucket=row["bucket"],
            name=row["name"],
            generation=row["generation"],
            metageneration=row["metageneration"],
            live=bool(row["live"]),
            content=content,
            created=row["created"],
            updated=row["updated"],
            deleted=row["deleted"],
            meta=json.loads(row["meta"]),
        )


@dataclass(frozen=True)
class Draft:
    """An object that is about to be.

    :param bucket: name of an existing bucket.
    :param name: any allowed name.
    :param meta: object metadata as the client sent it.
    :param conditions: checked in the same transaction that commits.
    """

    bucket: str
    name: str
    meta: Mapping[str, Any]
    conditions: Preconditions


def live(store: Store, bucket: str, name: str) -> Generation | None:
    """Return the current generation of an object, or ``None``."""
    row = store.one("SELECT * FROM objects WHERE bucket = ? AND name = ? AND live = 1", bucket, name)
    return Generation.of_row(row) if row else None


def find(store: Store, bucket: str, name: str, generation: int | None = None) -> Generation:
    """Return a generation of an object; by default the current one.

    :raises GCSError: 404 if the bucket or the generation is not there.
    """
    buckets.find(store, bucket)
    if generation is None:
        found = live(store, bucket, name)
    else:
        sql = "SELECT * FROM objects WHERE bucket = ? AND name = ? AND generation = ?"
        row = store.one(sql, bucket, name, generation)
        found = Generation.of_row(row) if row else None
    if found is None:
        raise errors.no_object(bucket, name)
    return found


def check(store: Store, draft: Draft) -> None:
    """Refuse early what :func:`commit` would refuse anyway, before the content has been sent.

    :raises GCSError: 400, 404 or 412.
    """
    check_object_name(draft.name)
    buckets.find(store, draft.bucket)
    draft.conditions.check_write(live(store, draft.bucket, draft.name))


def commit(store: Store, draft: Draft, content: Content) -> Generation:
    """Make content the current generation of an object.

    :raises GCSError: 400, 403 (hold), 404 or 412; nothing has changed then, and the content is still the caller's.
    """
    with store.transaction():
        check(store, draft)
        _retire(store, draft.bucket, draft.name)
        generation = _insert(store, draft, content)
        return find(store, draft.bucket, draft.name, generation)


def _insert(store: Store, draft: Draft, content: Content) -> int:
    number, now = store.next_generation(), store.timestamp()
    identity = {"bucket": draft.bucket, "name": draft.name, "generation": number, "metageneration": 1, "live": 1}
    times = {"created": now, "updated": now, "deleted": None}
    meta = {**settable(draft.meta), **_encrypted(buckets.find(store, draft.bucket))}
    store.insert("objects", {**identity, **vars(content), **times, "meta": json.dumps(meta)})
    return number


def _encrypted(bucket: buckets.Bucket) -> dict[str, str]:
    """Return what an object shows of the key that it is encrypted with, if that is a customer's."""
    return {KMS_KEY: f"{bucket.default_key}/cryptoKeyVersions/1"} if bucket.default_key else {}


def settable(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a client's metadata that a client may set."""
    return {key: value for key, value in body.items() if key in SETTABLE and value is not None}


def _retire(store: Store, bucket: str, name: str) -> None:
    """End the current generation, if there is one."""
    old = live(store, bucket, name)
    if old is None:
        return
    if buckets.find(store, bucket).versioned:
        sql = "UPDATE objects SET live = 0, deleted = ? WHERE bucket = ? AND name = ? AND live = 1"
        store.query(sql, store.timestamp(), bucket, name)
    else:
        _erase(store, old)


def _erase(store: Store, row: Generation) -> None:
    """Remove a generation; its description stays if the bucket has a soft-delete policy.

    :raises GCSError: 403 if it is held.
    """
    if row.meta.get("temporaryHold") or row.meta.get("eventBasedHold"):
        text = f"Object '{row.bucket}/{row.name}' is under active hold and cannot be deleted, overwritten or archived."
        raise GCSError(403, "forbidden", text)
    soft_delete.remember(store, buckets.find(store, row.bucket), row.generation, row.name)
    sql = "DELETE FROM objects WHERE bucket = ? AND name = ? AND generation = ?"
    store.query(sql, row.bucket, row.name, row.generation)
    store.discard(row.content.blob)


def delete(store: Store, bucket: str, name: str, generation: int | None, conditions: Preconditions) -> None:
    """Delete the current generation (kept as noncurrent in a versioned bucket) or, for good, the named generation.

    :raises GCSError: 403 (hold), 404 or 412.
    """
    with store.transaction():
        target = find(store, bucket, name, generation)
        conditions.check_write(target)
        if generation is None:
            _retire(store, bucket, name)
        else:
            _erase(store, target)


def change(store: Store, target: Generation, meta: dict[str, Any], conditions: Preconditions) -> Generation:
    """Replace the metadata of a generation.

    :raises GCSError: 404 or 412.
    """
    with store.transaction():
        conditions.check_write(find(store, target.bucket, target.name, target.generation))
        store.query(
            "UPDATE objects SET meta = ?, metageneration = metageneration + 1, updated = ? "
            "WHERE bucket = ? AND name = ? AND generation = ?",
            json.dumps({**settable(meta), **{key: target.meta[key] for key in (KMS_KEY,) if key in target.meta}}),
            store.timestamp(),
            target.bucket,
            target.name,
            target.generation,
        )
        return find(store, target.bucket, target.name, target.generation)
