"""V4 signed URLs: shape, age and the headers they promise.

https://cloud.google.com/storage/docs/authentication/canonical-requests. The signature itself cannot be checked: the
local cloud knows nobody's public key. All else that makes Google refuse a URL is refused here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from localcloud.gcs.protocol.wire import Call
from localcloud.gcs.storage.errors import GCSError

MAX_SECONDS = 7 * 24 * 3600
_ALGORITHMS = ("GOOG4-RSA-SHA256", "GOOG4-HMAC-SHA256")
_HEX = re.compile("[0-9a-fA-F]{40,}")


def is_signed(call: Call) -> bool:
    """Return whether a request came by a signed URL."""
    return "X-Goog-Algorithm" in call.query or "X-Goog-Signature" in call.query


def check(call: Call, now: datetime) -> None:
    """Accept a request that came by a signed URL.

    :raises GCSError: 400 if the URL is malformed or has expired, 403 if a signed header is missing.
    """
    for problem in _problems(call):
        raise GCSError(400, "invalid", problem, "InvalidArgument")
    start, seconds = _start(call), int(call.query["X-Goog-Expires"])
    end = start + timedelta(seconds=seconds)
    if now >= end:
        text = f"Invalid argument. Request signature expired at: {end.isoformat()}"
        raise GCSError(400, "expired", text, "ExpiredToken")
    for name in call.query["X-Goog-SignedHeaders"].split(";"):
        if name != "host" and name not in call.headers:
            text = f"Access denied. The signed header {name} was not sent with the request."
            raise GCSError(403, "forbidden", text, "SignatureDoesNotMatch")


def _problems(call: Call) -> Iterator[str]:
    query = call.query
    needed = ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"]
    missing = [f"X-Goog-{name}" for name in needed if not query.get(f"X-Goog-{name}")]
    if missing:
        yield f"The signed URL lacks {', '.join(missing)}"
        return
    if query["X-Goog-Algorithm"] not in _ALGORITHMS:
        yield f"Unknown signing algorithm {query['X-Goog-Algorithm']}"
    if not query["X-Goog-Credential"].endswith("/storage/goog4_request"):
        yield "The scope of X-Goog-Credential must end with /storage/goog4_request"
    if not query["X-Goog-Expires"].isdigit() or not 1 <= int(query["X-Goog-Expires"]) <= MAX_SECONDS:
        yield f"X-Goog-Expires must be from 1 to {MAX_SECONDS} seconds"
    if not _HEX.fullmatch(query["X-Goog-Signature"]):
        yield "X-Goog-Signature is not hexadecimal"


def _start(call: Call) -> datetime:
    text = call.query["X-Goog-Date"]
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise GCSError(400, "invalid", f"X-Goog-Date is malformed: {text}", "InvalidArgument") from None
