"""Uploads one file: resumable, verified, and never over something newer.

https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gcs.requests import Answer, Failure, Storage, Unavailable

CHUNK_BYTES = 8 * 1024 * 1024  # a multiple of 256 KiB, as the protocol demands
_SESSIONS = 3


class Changed(Exception):
    """The file is being written while it is read."""


class Occupied(Failure):
    """The name is taken by other content than was sent."""


class Stored(NamedTuple):
    """An object as the bucket knows it; checksums in base64, as Cloud Storage spells them."""

    size: int
    md5: str
    crc32c: str
    generation: int

    @classmethod
    def read(cls, resource: dict[str, Any]) -> Stored:
        """Read an object resource of the JSON API."""
        md5, crc32c = resource.get("md5Hash", ""), resource.get("crc32c", "")
        return cls(int(resource["size"]), md5, crc32c, int(resource["generation"]))


class Source:
    """A file opened for one upload: its size is fixed at that moment, and so is what is read.

    :param path: a regular file; a link to one is not followed.
    :param growing: whether bytes may be appended meanwhile, as to the log of a run that goes on.
    :raises Changed: if it is no regular file (any more).
    """

    def __init__(self, path: Path, growing: bool = False) -> None:
        # Between the listing and now a FIFO may have taken the name; opening one would block for ever.
        self._descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._growing = growing
        self._before = os.fstat(self._descriptor)
        if not stat.S_ISREG(self._before.st_mode):
            self.close()
            raise Changed("is no regular file any more")
        self.size = self._before.st_size
        self.md5 = ""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def hash(self) -> None:
        """Read all of it once and set ``md5``."""
        digest = hashlib.md5()  # noqa: S324 - the checksum that Cloud Storage verifies; no security rests on it
        for offset in range(0, self.size, CHUNK_BYTES):
            digest.update(self.read(offset))
        self.md5 = base64.b64encode(digest.digest()).decode("ascii")

    def read(self, offset: int) -> bytes:
        """Return the chunk at ``offset``.

        :raises Changed: if the file has become shorter.
        """
        wanted = min(CHUNK_BYTES, self.size - offset)
        data = os.pread(self._descriptor, wanted, offset)
        if len(data) != wanted:
            raise Changed("became shorter while it was read")
        return data

    def check(self) -> None:
        """Raise :class:`Changed` if somebody has written to the file since it was opened."""
        now = os.fstat(self._descriptor)
        if not self._growing and (now.st_size, now.st_mtime_ns) != (self.size, self._before.st_mtime_ns):
            raise Changed("was written to while it was read (%d bytes, then %d)" % (self.size, now.st_size))


def split_uri(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of ``gs://bucket/prefix``.

    :raises ValueError: if it is none.
    """
    bucket, _, prefix = uri[len("gs://") :].partition("/")
    prefix = prefix.strip("/")
    if not uri.startswith("gs://") or not bucket or not prefix:
        raise ValueError("%r: expected gs://bucket/prefix" % uri)
    return bucket, prefix


class Bucket:
    """One bucket.

    :param storage: the service.
    :param name: of the bucket.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._objects = "/b/%s/o" % quote(name, safe="")

    def listing(self, prefix: str) -> dict[str, Stored]:
        """Return the objects below a prefix; none if we may create but not list."""
        try:
            return self.entries(prefix)
        except Failure as error:
            if error.status == 403:
                return {}
            raise

    def entries(self, prefix: str) -> dict[str, Stored]:
        """Return the objects below a prefix.

        :raises Failure: if they cannot be listed, for whatever reason: that is not the same as none.
        """
        found: dict[str, Stored] = {}
        fields = "fields=nextPageToken,items(name,size,md5Hash,crc32c,generation)"
        url = "%s/storage/v1%s?prefix=%s&%s" % (self._storage.url, self._objects, quote(prefix, safe=""), fields)
        token = ""
        while True:
            page = self._storage.request("GET", url + ("&pageToken=" + quote(token, safe="") if token else "")).json()
            found.update((item["name"], Stored.read(item)) for item in page.get("items", []))
            token = page.get("nextPageToken", "")
            if not token:
                return found

    def upload(self, source: Source, name: str, known: Stored | None, content_type: str) -> Stored:
        """Bring what was read of a file into the bucket, unless it is there.

        :param source: the file, hashed.
        :param name: of the object.
        :param known: the object of that name, None if there was none; anything else there is left alone.
        :param content_type: for people who open it in a browser.
        :raises Failure: if the bucket refuses, or holds something else than was sent.
        :raises Changed: if the file has become shorter.
        """
        if known is not None and (known.size, known.md5) == (source.size, source.md5):
            return known
        try:
            stored = self._upload(source, name, known.generation if known else 0, content_type)
        except Failure as error:
            if error.status != 412:
                raise
            # Either an answer to us was lost, or somebody else writes here: the content tells.
            stored = self._stat(name)
        if (stored.size, stored.md5) != (source.size, source.md5):
            raise Occupied(0, "the bucket holds other content of this name (generation %d)" % stored.generation)
        return stored

    def _stat(self, name: str) -> Stored:
        return Stored.read(self._storage.request("GET", self._url(name)).json())

    def _url(self, name: str) -> str:
        return "%s/storage/v1%s/%s" % (self._storage.url, self._objects, quote(name, safe=""))

    def _upload(self, source: Source, name: str, generation: int, content_type: str) -> Stored:
        for _ in range(_SESSIONS):
            session = self._begin(source, name, generation, content_type)
            try:
                return Stored.read(self._send(session, source).json())
            except Failure as error:
                if error.status not in (404, 410):  # the session is lost: start over
                    raise
        raise Failure(410, "the upload session was lost %d times" % _SESSIONS)

    def _begin(self, source: Source, name: str, generation: int, content_type: str) -> str:
        query = "uploadType=resumable&ifGenerationMatch=%d&name=%s" % (generation, quote(name, safe=""))
        url = "%s/upload/storage/v1%s?%s" % (self._storage.url, self._objects, query)
        metadata = {"name": name, "md5Hash": source.md5, "contentType": content_type}
        answer = self._storage.request(
            "POST",
            url,
            json.dumps(metadata).encode("ascii"),
            Content_Type="application/json",
            X_Upload_Content_Length=str(source.size),
            X_Upload_Content_Type=content_type,
        )
        return answer.headers["Location"]

    def _send(self, session: str, source: Source) -> Answer:
        """Send chunk after chunk. After a failure ask first how much was kept; only failures without progress count."""
        backoff = self._storage.backoff()
        offset: int | None = 0
        kept = 0
        while True:
            try:
                answer = self._put(session, source, offset)
            except Unavailable as error:
                backoff.failed(error)
                offset = None
                continue
            if answer.status != 308:
                return answer
            offset = _kept(answer)
            if offset > kept:
                kept = offset
                backoff.progressed()
            else:
                backoff.failed(Unavailable(308, "the upload does not get beyond byte %d" % kept))

    def _put(self, session: str, source: Source, offset: int | None) -> Answer:
        """Send the chunk at ``offset``; None sends nothing and asks."""
        data = b"" if offset is None else source.read(offset)
        first = offset or 0
        span = "%d-%d" % (first, first + len(data) - 1) if data else "*"
        return self._storage.once("PUT", session, data, Content_Range="bytes %s/%d" % (span, source.size))


def _kept(answer: Answer) -> int:
    """Return how many bytes a 308 says are safe: ``Range: bytes=0-41`` means 42, no header means none."""
    last = answer.headers.get("Range", "").rpartition("-")[2]
    return int(last) + 1 if last else 0
