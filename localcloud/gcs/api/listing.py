# SPDX-License-Identifier: Apache-2.0
"""Listing of objects: prefix, delimiter, offsets, versions, soft-deleted objects and pages.

The product and the runner list by prefix, the product soft-deleted objects as well; TensorFlow and gcsfs fold folders
by a delimiter; gcsfs lists several ranges of names at once by offsets.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass

from localcloud.gcs.protocol.wire import Call
from localcloud.gcs.storage.errors import GCSError
from localcloud.gcs.storage.objects import Generation
from localcloud.gcs.storage.store import Store

MAX_PAGE = 1000
_BATCH = 500


@dataclass(frozen=True)
class Query:
    """What a client wants to see.

    :param prefix: names must start with it.
    :param delimiter: names that contain it behind the prefix are folded into one entry of ``prefixes``.
    :param start: names must not be smaller (UTF-8 byte order).
    :param end: names must be smaller; empty for no bound.
    :param versions: noncurrent generations too.
    :param soft_deleted: soft-deleted generations and no others.
    :param trailing: an object whose name ends with the first delimiter is listed beside its prefix.
    :param limit: longest page; objects and prefixes count together.
    :param after: resume behind this (name, generation); the first page starts behind ("", 0).
    """

    prefix: str
    delimiter: str
    start: str
    end: str
    versions: bool
    soft_deleted: bool
    trailing: bool
    limit: int
    after: tuple[str, int]

    @classmethod
    def of(cls, call: Call) -> Query:
        """Read the parameters of a list request.

        :raises GCSError: 400 if one is malformed.
        """
        query = call.query
        size = call.number("maxResults")
        if size is not None and size < 0:
            raise GCSError(400, "invalid", f"Invalid value for maxResults: {size}")
        if call.flag("versions") and call.flag("softDeleted"):
            raise GCSError(400, "invalid", "versions and softDeleted cannot both be true.")
        return cls(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=query.get("startOffset", ""),
            end=query.get("endOffset", ""),
            versions=call.flag("versions"),
            soft_deleted=call.flag("softDeleted"),
            trailing=call.flag("includeTrailingDelimiter"),
            limit=min(size or MAX_PAGE, MAX_PAGE),
            after=decode_token(query.get("pageToken", "")),
        )

    def folder(self, name: str) -> str | None:
        """Return the common prefix that stands for a name, or ``None`` if the name stands for itself."""
        cut = name.find(self.delimiter, len(self.prefix)) if self.delimiter else -1
        return None if cut < 0 else name[: cut + len(self.delimiter)]


@dataclass(frozen=True)
class Page:
    """One page of a listing.

    :param items: objects.
    :param prefixes: folded names.
    :param token: of the next page, or empty.
    """

    items: list[Generation]
    prefixes: list[str]
    token: str


def list_page(store: Store, bucket: str, query: Query) -> Page:
    """Return one page of the objects of a bucket."""
    items: list[Generation] = []
    prefixes: list[str] = []
    last = query.after
    for entry in _entries(store, bucket, query):
        if len(items) + len(prefixes) == query.limit:
            return Page(items, prefixes, encode_token(last))
        if isinstance(entry, str):
            prefixes.append(entry)
            last = (_last_below(entry), 0)
        else:
            items.append(entry)
            last = (entry.name, entry.generation)
    return Page(items, prefixes, "")


def _entries(store: Store, bucket: str, query: Query) -> Iterator[Generation | str]:
    """Yield objects and common prefixes in order; what is left of a folder behind a batch is skipped by one seek.

    Python compares text by code point, which is the order of UTF-8 bytes, SQLite's and Google's.
    """
    after = max(query.after, (max(query.prefix, query.start), 0))
    while rows := _rows(store, bucket, query, after):
        for row in rows:
            if (row.name, row.generation) <= after:
                continue
            after = (row.name, row.generation)
            if not row.name.startswith(query.prefix) or (query.end and row.name >= query.end):
                return
            folder = query.folder(row.name)
            if folder is None or (query.trailing and row.name == folder):
                yield row
            if folder is not None:
                yield folder
                after = (_last_below(folder), 0)


def _rows(store: Store, bucket: str, query: Query, after: tuple[str, int]) -> list[Generation]:
    if query.soft_deleted:
        rows = store.query(
            "SELECT * FROM soft_deleted WHERE bucket = ? AND (name, generation) > (?, ?) AND hard_delete > ? "
            "ORDER BY name, generation LIMIT ?",
            bucket,
            *after,
            store.timestamp(),
            min(_BATCH, query.limit + 1),
        )
        return [Generation.of_row(row) for row in rows]
    rows = store.query(
        "SELECT * FROM objects WHERE bucket = ? AND (name, generation) > (?, ?) AND live >= ? "
        "ORDER BY name, generation LIMIT ?",
        bucket,
        *after,
        0 if query.versions else 1,
        min(_BATCH, query.limit + 1),
    )
    return [Generation.of_row(row) for row in rows]


def _last_below(folder: str) -> str:
    """Return a string behind every allowed name in a folder and before all that follow it.

    U+10FFFF repeated is the greatest text of its length, and no name is longer than 1,024 bytes.
    """
    return folder + "\U0010ffff" * 256


def encode_token(after: tuple[str, int]) -> str:
    """Return the page token that resumes behind a (name, generation)."""
    name, generation = after
    return base64.urlsafe_b64encode(f"{generation}:{name}".encode()).decode()


def decode_token(token: str) -> tuple[str, int]:
    """Read a page token; an empty one starts at the beginning.

    :raises GCSError: 400 if this server did not write it.
    """
    if not token:
        return ("", 0)
    try:
        generation, _, name = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        return (name, int(generation))
    except (binascii.Error, ValueError):
        raise GCSError(400, "invalid", "Invalid value for pageToken") from None
