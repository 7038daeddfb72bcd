# SPDX-License-Identifier: Apache-2.0
"""Buckets: create, get, list, change, delete."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from localcloud.gcs.storage import errors
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.names import check_bucket_name
from localcloud.gcs.storage.policies import DEFAULT_SOFT_DELETE, SOFT_DELETE, settled
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

DEFAULT_LOCATION = "US"
MULTI_REGIONS = frozenset({"US", "EU", "ASIA"})
# Everything the server itself derives; a client that sends it back is not believed.
_DERIVED = frozenset(
    {"kind", "id", "selfLink", "etag", "name", "projectNumber", "location", "locationType", "timeCreated", "updated"}
    | {"metageneration", "generation", "acl", "defaultObjectAcl", "owner"}
)


@dataclass(frozen=True)
class Bucket:
    """One bucket.

    :param name: unique name.
    :param project: project it was created under.
    :param project_number: number of that project.
    :param location: region or multi-region, upper case.
    :param metageneration: grows with every change of the bucket.
    :param created: RFC 3339.
    :param updated: RFC 3339.
    :param config: what clients may set (versioning, labels, lifecycle, ...).
    """

    name: str
    project: str
    project_number: str
    location: str
    metageneration: int
    created: str
    updated: str
    config: dict[str, Any]

    @property
    def generation(self) -> int:
        """Buckets have one generation only."""
        return 1

    @property
    def versioned(self) -> bool:
        """Whether overwritten and deleted objects are kept as noncurrent generations."""
        versioning = self.config.get("versioning") or {}
        return bool(versioning.get("enabled"))

    @property
    def default_key(self) -> str:
        """Name of the customer-managed key that new objects are encrypted with, empty for Google's own."""
        encryption = self.config.get("encryption") or {}
        return str(encryption.get("defaultKmsKeyName") or "")

    @classmethod
    def of_row(cls, row: sqlite3.Row) -> Bucket:
        """Read a database row."""
        values = dict(row)
        return cls(**{**values, "config": json.loads(values["config"])})


def find(store: Store, name: str) -> Bucket:
    """Return a bucket.

    :raises GCSError: 404 if there is none of that name.
    """
    row = store.one("SELECT * FROM buckets WHERE name = ?", name)
    if row is None:
        raise errors.no_bucket()
    return Bucket.of_row(row)


def check_payer(store: Store, name: str, project: str | None) -> None:
    """Refuse a request that names no project to bill, on a bucket whose readers pay.

    https://cloud.google.com/storage/docs/requester-pays

    :param name: of the bucket, empty for a request on none.
    :param project: that the request is billed to.
    :raises GCSError: 400.
    """
    row = store.one("SELECT * FROM buckets WHERE name = ?", name) if name and not project else None
    if row is not None and (Bucket.of_row(row).config.get("billing") or {}).get("requesterPays"):
        text = "Bucket is a requester pays bucket but no user project provided."
        raise GCSError(400, "required", text, "UserProjectMissing")


def create(store: Store, name: str, project: str, project_number: str, body: dict[str, Any]) -> Bucket:
    """Create a bucket from the JSON of a request.

    :raises GCSError: 400 for a forbidden name or policy, 409 if the name is taken.
    """
    check_bucket_name(name)
    location = str(body.get("location") or DEFAULT_LOCATION).upper()
    now = store.timestamp()
    config = settled({SOFT_DELETE: DEFAULT_SOFT_DELETE, **merged(_defaults(), _settable(body))}, {}, now)
    bucket = Bucket(name, project, project_number, location, 1, now, now, config)
    with store.transaction():
        if store.one("SELECT name FROM buckets WHERE name = ?", name):
            text = "Your previous request to create the named bucket succeeded and you already own it."
            raise GCSError(409, "conflict", text)
        store.insert("buckets", {**vars(bucket), "config": json.dumps(bucket.config)})
    return bucket


def _defaults() -> dict[str, Any]:
    access = {"enabled": True, "lockedTime": None}
    iam = {"uniformBucketLevelAccess": access, "bucketPolicyOnly": access, "publicAccessPrevention": "inherited"}
    return {"storageClass": "STANDARD", "iamConfiguration": iam}


def _settable(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in _DERIVED}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return ``old`` with the changes of a JSON merge patch (RFC 7396): null removes a key, objects merge deeply."""
    result = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result


def change(store: Store, name: str, body: dict[str, Any], conditions: Preconditions, replace: bool) -> Bucket:
    """Apply a patch, or replace all settings.

    :raises GCSError: 400 for a policy that Google does not offer, 404 or 412.
    """
    with store.transaction():
        bucket, now = find(store, name), store.timestamp()
        conditions.check_write(bucket)
        config = settled(merged(_defaults() if replace else bucket.config, _settable(body)), bucket.config, now)
        store.query(
            "UPDATE buckets SET config = ?, metageneration = metageneration + 1, updated = ? WHERE name = ?",
            json.dumps(config),
            now,
            name,
        )
        return find(store, name)


def delete(store: Store, name: str, conditions: Preconditions) -> None:
    """Delete an empty bucket, with the upload sessions that were open in it.

    :raises GCSError: 404, 412, or 409 while any generation of any object is left.
    """
    with store.transaction():
        conditions.check_write(find(store, name))
        if store.one("SELECT name FROM objects WHERE bucket = ? LIMIT 1", name):
            raise GCSError(409, "conflict", "The bucket you tried to delete is not empty.")
        uploads = store.query("SELECT blob FROM uploads WHERE bucket = ?", name)
        store.query("DELETE FROM uploads WHERE bucket = ?", name)
        store.query("DELETE FROM soft_deleted WHERE bucket = ?", name)
        store.query("DELETE FROM buckets WHERE name = ?", name)
        store.discard(*(row["blob"] for row in uploads if row["blob"]))


def listed(store: Store, project: str, prefix: str, after: str, limit: int) -> list[Bucket]:
    """Return up to ``limit`` buckets of a project by name, behind the name ``after``."""
    rows = store.query(
        "SELECT * FROM buckets WHERE project = ? AND name > ? AND substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
        project,
        after,
        len(prefix),
        prefix,
        limit,
    )
    return [Bucket.of_row(row) for row in rows]
