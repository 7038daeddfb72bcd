# SPDX-License-Identifier: Apache-2.0
"""The headers ``Range`` (reads) and ``Content-Range`` (resumable uploads)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localcloud.gcs.storage.errors import GCSError

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return first byte and length of the slice a client asks for, or ``None`` for the whole.

    A list of ranges or anything malformed counts as no range, as HTTP wants it.

    :raises GCSError: 416 if the range lies outside the object.
    """
    match = _RANGE.fullmatch((header or "").strip())
    if not match or match.group(1) == match.group(2) == "":
        return None
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size
        satisfiable = int(last) > 0 and size > 0
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        satisfiable = start < end
    if not satisfiable:
        raise GCSError(416, "requestedRangeNotSatisfiable", f"Request range not satisfiable: {header}")
    return start, end - start


@dataclass(frozen=True)
class ContentRange:
    """What one request of a resumable upload carries.

    :param first: position of its first byte, or ``None`` if it carries no content (a status query).
    :param total: size of the whole object, or ``None`` if not known yet.
    :param whole: the request has no ``Content-Range``: its body is all the content.
    """

    first: int | None
    total: int | None
    whole: bool = False

    @classmethod
    def parse(cls, header: str | None) -> ContentRange:
        """Read the header.

        :raises GCSError: 400 if it is malformed.
        """
        if header is None:
            return cls(0, None, whole=True)
        match = _CONTENT_RANGE.fullmatch(header.strip())
        if match is None:
            raise GCSError(400, "badRequest", f"Failed to parse Content-Range header: {header!r}")
        first, _, total = match.groups()
        return cls(None if first is None else int(first), None if total == "*" else int(total))
