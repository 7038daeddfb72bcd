"""One JSON text per value, so that writing the same thing twice writes the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def encode(data: Mapping[str, Any]) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8, no NaN.

    :raises ValueError: if a number is NaN or infinite.
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def instant_to_json(instant: datetime | None) -> str | None:
    """ISO form in UTC of an aware instant.

    :raises ValueError: if the instant is naive.
    """
    if instant is None:
        return None
    if instant.tzinfo is None:
        raise ValueError(f"{instant} needs a timezone")
    return instant.astimezone(UTC).isoformat()


def instant_from_json(text: str | None) -> datetime | None:
    """Inverse of :func:`instant_to_json`.

    :raises ValueError: if the text is no ISO instant with a timezone.
    """
    if text is None:
        return None
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text} needs a timezone")
    return instant.astimezone(UTC)
