# SPDX-License-Identifier: Apache-2.0
"""Requests of the JSON interface on one object: get, download, change, delete."""

from __future__ import annotations

from localcloud.gcs.api import media
from localcloud.gcs.api.resources import object_resource
from localcloud.gcs.protocol.wire import Call, Reply
from localcloud.gcs.storage import objects
from localcloud.gcs.storage.buckets import merged
from localcloud.gcs.storage.objects import Generation
from localcloud.gcs.storage.preconditions import Preconditions
from localcloud.gcs.storage.store import Store


def _find(store: Store, call: Call) -> Generation:
    return objects.find(store, call.bucket, call.object, call.number("generation"))


async def get(store: Store, call: Call) -> Reply:
    """Answer GET on ``/storage/v1/b/BUCKET/o/OBJECT``, and on the same below ``/download``."""
    row = _find(store, call)
    Preconditions.of_query(call.query).check_read(row)
    if call.query.get("alt") == "media":
        return media.read(store, call, row)
    return Reply.json(object_resource(row, call.base_url))


async def patch(store: Store, call: Call) -> Reply:
    """Answer PATCH: a merge, where null removes a field or a metadata key."""
    body, conditions = await call.json(), Preconditions.of_query(call.query)
    row = _find(store, call)
    return _changed(call, objects.change(store, row, merged(row.meta, body), conditions))


def _changed(call: Call, row: Generation) -> Reply:
    return Reply.json(object_resource(row, call.base_url))


async def delete(store: Store, call: Call) -> Reply:
    """Answer DELETE."""
    conditions = Preconditions.of_query(call.query)
    objects.delete(store, call.bucket, call.object, call.number("generation"), conditions)
    return Reply(204)
