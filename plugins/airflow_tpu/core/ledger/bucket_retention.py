# SPDX-License-Identifier: Apache-2.0
"""Settings of a bucket that keep, and bill, objects after they were deleted or replaced."""

from __future__ import annotations

from dataclasses import dataclass

_UPDATE = "gcloud storage buckets update"


@dataclass(frozen=True)
class BucketRetention:
    """Settings of a bucket under which an object outlives its delete.

    :param soft_delete_seconds: how long a deleted or replaced object can be brought back, 0 for not at all.
    :param retention_seconds: how long no object may be deleted or replaced, 0 for no such rule.
    :param versioning: whether replaced and deleted objects stay as noncurrent versions.
    """

    soft_delete_seconds: int = 0
    retention_seconds: int = 0
    versioning: bool = False


def warnings(bucket: str, retention: BucketRetention | None) -> list[str]:
    """One sentence for each such setting: what it costs, and how it is switched off.

    :param bucket: name of the bucket.
    :param retention: its settings, None if they may not be read.
    """
    uri = f"gs://{bucket}"
    if retention is None:
        return [f"{uri}: its settings may not be read, so whether it bills what was deleted is unknown"]
    found = []
    if retention.soft_delete_seconds:
        kept = _days(retention.soft_delete_seconds)
        found.append(
            f"{uri} keeps what is deleted or replaced for {kept} and bills it as before, "
            f"every old checkpoint included (soft delete). To switch it off: {_UPDATE} {uri} --clear-soft-delete"
        )
    if retention.retention_seconds:
        found.append(
            f"{uri} lets nothing be deleted or replaced for {_days(retention.retention_seconds)}: everything is billed "
            f"so long, and leases and checkpoints cannot be renewed (retention policy). To switch it off, unless it is "
            f"locked: {_UPDATE} {uri} --clear-retention-period"
        )
    if retention.versioning:
        found.append(
            f"{uri} keeps every replaced or deleted object as a noncurrent version and bills it until you delete "
            f"that (versioning). To switch it off: {_UPDATE} {uri} --no-versioning; the versions that are there stay"
        )
    return found


def _days(seconds: int) -> str:
    return f"{seconds / 86_400:.3g} days"
