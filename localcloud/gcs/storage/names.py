# SPDX-License-Identifier: Apache-2.0
"""Which names a bucket and an object may have.

Rules: https://cloud.google.com/storage/docs/buckets#naming and https://cloud.google.com/storage/docs/objects#naming
"""

from __future__ import annotations

import re

from localcloud.gcs.storage.errors import GCSError

MAX_OBJECT_NAME_BYTES = 1024
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_ACME = ".well-known/acme-challenge/"


def check_bucket_name(name: str) -> None:
    """Accept a bucket name.

    :raises GCSError: 400 if it breaks a rule.
    """
    parts_fit = all(len(part) <= 63 for part in name.split("."))
    if not _BUCKET.fullmatch(name) or not parts_fit or name.startswith("goog") or "google" in name:
        raise GCSError(400, "invalid", f"Invalid bucket name: '{name}'")


def check_object_name(name: str) -> None:
    """Accept an object name.

    :raises GCSError: 400 if it is empty or forbidden.
    """
    if not name:
        raise GCSError(400, "required", "Required parameter: name")
    forbidden = name in (".", "..") or "\n" in name or "\r" in name or name.startswith(_ACME)
    if forbidden or not _fits(name):
        raise GCSError(400, "invalid", f"Disallowed name: {name[:80]!r}")


def _fits(name: str) -> bool:
    try:
        return len(name.encode()) <= MAX_OBJECT_NAME_BYTES
    except UnicodeEncodeError:
        return False
