# SPDX-License-Identifier: Apache-2.0
"""Requests on buckets."""

from __future__ import annotations

from typing import Any

from localcloud.gcs.api.listing import MAX_PAGE, Query, list_page
from localcloud.gcs.api.resources import bucket_resource, listed_resource
from localcloud.gcs.protocol.partial import selection
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import buckets
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store

DEFAULT_PROJECT_NUMBER = "000000000001"


async def create(store: Store, call: Call) -> Reply:
    """Answer POST on ``/storage/v1/b``."""
    body = await call.json()
    name, project = str(body.get("name", "")), call.query.get("project", "")
    await call.named(bucket=name)
    bucket = buckets.create(store, name, project, DEFAULT_PROJECT_NUMBER, body)
    return Reply.json(bucket_resource(bucket, call.base_url))


async def list_all(store: Store, call: Call) -> Reply:
    """Answer GET on ``/storage/v1/b``."""
    limit = min(call.number("maxResults") or MAX_PAGE, MAX_PAGE)
    after, project = call.query.get("pageToken", ""), call.query.get("project", "")
    found = buckets.listed(store, project, call.query.get("prefix", ""), after, limit + 1)
    items = [bucket_resource(row, call.base_url) for row in found[:limit]]
    token = found[limit - 1].name if len(found) > limit else ""
    return _listing("storage#buckets", items=items, nextPageToken=token)


async def get(store: Store, call: Call) -> Reply:
    """Answer GET on ``/storage/v1/b/BUCKET``."""
    bucket = buckets.find(store, call.bucket)
    Preconditions.of_query(call.query).check_read(bucket)
    return Reply.json(bucket_resource(bucket, call.base_url))


async def patch(store: Store, call: Call) -> Reply:
    """Answer PATCH (merge) and PUT (replace) on ``/storage/v1/b/BUCKET``."""
    conditions = Preconditions.of_query(call.query)
    bucket = buckets.change(store, call.bucket, await call.json(), conditions, replace=call.method == "PUT")
    return Reply.json(bucket_resource(bucket, call.base_url))


async def delete(store: Store, call: Call) -> Reply:
    """Answer DELETE on ``/storage/v1/b/BUCKET``."""
    buckets.delete(store, call.bucket, Preconditions.of_query(call.query))
    return Reply(204)


async def list_objects(store: Store, call: Call) -> Reply:
    """Answer GET on ``/storage/v1/b/BUCKET/o``."""
    buckets.find(store, call.bucket)
    page = list_page(store, call.bucket, Query.of(call))
    wanted = selection(call.query.get("fields", ""))
    only = wanted.get("items", frozenset()) if wanted is not None else frozenset()
    items = [listed_resource(row, call.base_url, only) for row in page.items]
    parts = {"kind": "storage#objects", "items": items, "prefixes": page.prefixes, "nextPageToken": page.token}
    return Reply.json({key: value for key, value in parts.items() if value and (wanted is None or key in wanted)})


def _listing(kind: str, **fields: Any) -> Reply:
    """Return a page of a listing; like Google, without the fields that are empty."""
    return Reply.json({"kind": kind} | {key: value for key, value in fields.items() if value})


def ensure(store: Store, name: str, location: str, project: str, project_number: str) -> None:
    """Create a bucket from inside the process; one that is there already stays as it is."""
    with store.transaction():
        if store.one("SELECT name FROM buckets WHERE name = ?", name) is None:
            buckets.create(store, name, project, project_number, {"location": location})


def usage(store: Store) -> dict[str, dict[str, int]]:
    """Return objects and bytes kept per bucket, noncurrent generations included."""
    rows = store.query(
        "SELECT b.name, COUNT(o.name) AS objects, COALESCE(SUM(o.size), 0) AS bytes_stored "
        "FROM buckets b LEFT JOIN objects o ON o.bucket = b.name GROUP BY b.name"
    )
    return {row["name"]: {"objects": row["objects"], "bytes_stored": row["bytes_stored"]} for row in rows}
