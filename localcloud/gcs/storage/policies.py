# SPDX-License-Identifier: Apache-2.0
"""Soft-delete and retention policies of a bucket, as Google shows them.

The policies are stored and shown. Soft delete keeps only the description of an object here, for listings; retention is
not carried out.
"""

from __future__ import annotations

from typing import Any

from localcloud.gcs.storage.errors import GCSError

SOFT_DELETE = "softDeletePolicy"
RETENTION = "retentionPolicy"
_SECONDS = {SOFT_DELETE: "retentionDurationSeconds", RETENTION: "retentionPeriod"}
_DAY = 86_400
# A new bucket keeps deleted objects for a week: https://cloud.google.com/storage/docs/soft-delete
DEFAULT_SOFT_DELETE = {"retentionDurationSeconds": str(7 * _DAY)}


def settled(config: dict[str, Any], before: dict[str, Any], now: str) -> dict[str, Any]:
    """Return a bucket's settings with each policy as Google answers it: seconds as text, with the time it began.

    :param config: the settings as they are to be.
    :param before: the settings as they were.
    :param now: RFC 3339.
    :raises GCSError: 400 for a period that is not a number, or that Google does not offer.
    """
    changed = {name: config[name] for name in _SECONDS if config.get(name) and config[name] != before.get(name)}
    return {**config, **{name: _answer(name, policy, now) for name, policy in changed.items()}}


def soft_delete_seconds(config: dict[str, Any]) -> int:
    """Return how long a bucket with these settings keeps what is deleted, 0 for not at all."""
    return max(0, _number((config.get(SOFT_DELETE) or {}).get(_SECONDS[SOFT_DELETE])))


def _answer(name: str, policy: dict[str, Any], now: str) -> dict[str, Any]:
    field = _SECONDS[name]
    seconds = _number(policy.get(field))
    days = seconds / _DAY
    fine = (seconds == 0 or 7 <= days <= 90) if name == SOFT_DELETE else 0 < days <= 36_500
    if not fine:
        raise GCSError(400, "invalid", f"Invalid argument: {name}.{field} is {seconds}")
    rest = {key: value for key, value in policy.items() if key not in (field, "effectiveTime")}
    return {**rest, field: str(seconds), **({"effectiveTime": now} if seconds else {})}


def _number(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() else -1
