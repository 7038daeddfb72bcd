# SPDX-License-Identifier: Apache-2.0
"""How buckets and objects look in the JSON interface."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from localcloud.gcs.storage.buckets import MULTI_REGIONS, Bucket
from localcloud.gcs.storage.objects import KMS_KEY, Generation


def etag(generation: int, metageneration: int) -> str:
    """Return the entity tag of a version of something."""
    return base64.b64encode(f"{generation}/{metageneration}".encode()).decode()


def bucket_resource(bucket: Bucket, base_url: str) -> dict[str, Any]:
    """Return the JSON form of a bucket."""
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{base_url}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": bucket.project_number,
        "location": bucket.location,
        "locationType": "multi-region" if bucket.location in MULTI_REGIONS else "region",
        "metageneration": str(bucket.metageneration),
        "generation": "1",
        "timeCreated": bucket.created,
        "updated": bucket.updated,
        "etag": etag(1, bucket.metageneration),
        **bucket.config,
    }


def object_resource(row: Generation, base_url: str) -> dict[str, Any]:
    """Return the JSON form of a generation of an object."""
    path = f"b/{quote(row.bucket, safe='')}/o/{quote(row.name, safe='')}"
    resource = {
        "kind": "storage#object",
        "id": f"{row.bucket}/{row.name}/{row.generation}",
        "selfLink": f"{base_url}/storage/v1/{path}",
        "mediaLink": f"{base_url}/download/storage/v1/{path}?generation={row.generation}&alt=media",
        "name": row.name,
        "bucket": row.bucket,
        "generation": str(row.generation),
        "metageneration": str(row.metageneration),
        "storageClass": "STANDARD",
        "size": str(row.content.size),
        "crc32c": row.content.crc32c,
        "etag": etag(row.generation, row.metageneration),
        "timeCreated": row.created,
        "updated": row.updated,
        "timeStorageClassUpdated": row.created,
        "timeFinalized": row.created,
        **row.meta,
    }
    optional = {"md5Hash": row.content.md5, "componentCount": row.content.components, "timeDeleted": row.deleted}
    return resource | {key: value for key, value in optional.items() if value is not None}


_PLAIN: dict[str, Callable[[Generation], str]] = {
    "name": lambda row: row.name,
    "generation": lambda row: str(row.generation),
    "size": lambda row: str(row.content.size),
    "crc32c": lambda row: row.content.crc32c,
}
"""Fields that long listings ask for alone: made without the rest."""


def listed_resource(row: Generation, base_url: str, only: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the JSON form of a generation as a listing shows it: with a customer-managed key, without checksums.

    https://cloud.google.com/storage/docs/encryption/customer-managed-keys#restrictions

    :param only: fields to send, none for all of them.
    """
    hidden = ("md5Hash", "crc32c") if KMS_KEY in row.meta else ()
    if only and only <= _PLAIN.keys():
        return {key: _PLAIN[key](row) for key in only if key not in hidden}
    resource = object_resource(row, base_url)
    return {key: value for key, value in resource.items() if key not in hidden and (not only or key in only)}
