# SPDX-License-Identifier: Apache-2.0
"""Soft-deleted objects: what a listing shows of them. Their bytes are gone here, so nothing can be brought back."""

from __future__ import annotations

import json
from datetime import timedelta

from localcloud.gcs.storage.buckets import Bucket
from localcloud.gcs.storage.policies import soft_delete_seconds
from localcloud.gcs.storage.store import Store, rfc3339


def remember(store: Store, bucket: Bucket, generation: int, name: str) -> None:
    """Keep the description of a generation that is about to be erased, if the bucket's policy says so."""
    seconds = soft_delete_seconds(bucket.config)
    if not seconds:
        return
    now = store.now()
    ends = rfc3339(now + timedelta(seconds=seconds))
    times = {"softDeleteTime": rfc3339(now), "hardDeleteTime": ends}
    store.query("DELETE FROM soft_deleted WHERE hard_delete <= ?", rfc3339(now))
    (row,) = store.query(
        "SELECT * FROM objects WHERE bucket = ? AND name = ? AND generation = ?", bucket.name, name, generation
    )
    kept = {**dict(row), "live": 0, "blob": "", "meta": json.dumps({**json.loads(row["meta"]), **times})}
    store.insert("soft_deleted", {**kept, "hard_delete": ends})
