# SPDX-License-Identifier: Apache-2.0
"""Uploads one file, verified and never over something newer: a small one in one request, a large one resumable.

https://cloud.google.com/storage/docs/uploading-objects, .../docs/performing-resumable-uploads
"""

from __future__ import annotations

import json
import uuid
from typing import Any, NamedTuple
from urllib.parse import quote

from gcs.connections import Response
from gcs.requests import RequestFailed, Storage, Unavailable
from gcs.source import CHUNK_BYTES, SourceFile

_SESSIONS = 3


class ObjectConflict(RequestFailed):
    """The name is taken by other content than was sent."""


class StoredObject(NamedTuple):
    """An object in the bucket.

    :param md5: base64, as Cloud Storage spells it; empty where it does not tell: no composite object has one, and no
        listing shows any checksum of an object with a customer-managed key.
    :param crc32c: the same.
    """

    size: int
    md5: str
    crc32c: str
    generation: int

    @classmethod
    def read(cls, resource: dict[str, Any]) -> StoredObject:
        """Read an object resource of the JSON API."""
        md5, crc32c = resource.get("md5Hash", ""), resource.get("crc32c", "")
        return cls(int(resource["size"]), md5, crc32c, int(resource["generation"]))


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

    def listing(self, prefix: str) -> dict[str, StoredObject]:
        """Return the objects below a prefix; none if the account may create objects but not list them."""
        try:
            return self.entries(prefix)
        except RequestFailed as error:
            if error.status == 403:
                return {}
            raise

    def entries(self, prefix: str) -> dict[str, StoredObject]:
        """Return the objects below a prefix.

        :raises RequestFailed: if they cannot be listed, which does not mean that there are none.
        """
        found: dict[str, StoredObject] = {}
        fields = "fields=nextPageToken,items(name,size,md5Hash,crc32c,generation)"
        url = "%s/storage/v1%s?prefix=%s&%s" % (self._storage.url, self._objects, quote(prefix, safe=""), fields)
        token = ""
        while True:
            page = self._storage.request("GET", url + ("&pageToken=" + quote(token, safe="") if token else "")).json()
            found.update((item["name"], StoredObject.read(item)) for item in page.get("items", []))
            token = page.get("nextPageToken", "")
            if not token:
                return found

    def checked(self, name: str, stored: StoredObject) -> StoredObject:
        """Return a listed object with its checksums: where the bucket has a customer-managed key no listing has them.

        https://cloud.google.com/storage/docs/encryption/customer-managed-keys#restrictions

        :return: the object as it was listed where the account may not ask for it, or it is gone.
        :raises RequestFailed: if the bucket does not answer.
        """
        if stored.crc32c:
            return stored
        try:
            return self._stat("%s?generation=%d" % (self._url(name), stored.generation))
        except RequestFailed as error:
            if error.status not in (403, 404):
                raise
            return stored

    def upload(self, source: SourceFile, name: str, known: StoredObject | None, content_type: str) -> StoredObject:
        """Upload a file, unless the bucket has it.

        :param source: the file.
        :param name: of the object.
        :param known: the object of that name, None if there was none; any other content there is left alone.
        :param content_type: for people who open it in a browser.
        :raises RequestFailed: if the bucket refuses, or holds other content than was sent.
        :raises FileChanged: if the file has become shorter.
        """
        if known is not None and known.size == source.size:
            known = self.checked(name, known)
            if known.md5 == source.md5:
                return known
        try:
            stored = self._upload(source, name, known.generation if known else 0, content_type)
        except RequestFailed as error:
            if error.status != 412:
                raise
            # Either a response was lost, or another writer was here: the content tells which.
            stored = self._stat(self._url(name))
        if (stored.size, stored.md5) != (source.size, source.md5):
            raise ObjectConflict(0, "the bucket holds other content of this name (generation %d)" % stored.generation)
        return stored

    def _stat(self, url: str) -> StoredObject:
        return StoredObject.read(self._storage.request("GET", url).json())

    def _url(self, name: str) -> str:
        return "%s/storage/v1%s/%s" % (self._storage.url, self._objects, quote(name, safe=""))

    def _upload(self, source: SourceFile, name: str, generation: int, content_type: str) -> StoredObject:
        url = "%s/upload/storage/v1%s?ifGenerationMatch=%d&name=%s" % (
            self._storage.url,
            self._objects,
            generation,
            quote(name, safe=""),
        )
        metadata = {"name": name, "contentType": content_type}
        if source.size <= CHUNK_BYTES:
            return self._send_whole(url + "&uploadType=multipart", metadata, source)
        for _ in range(_SESSIONS):
            session = self._begin(url + "&uploadType=resumable", metadata, source)
            try:
                return StoredObject.read(self._send(session, source).json())
            except RequestFailed as error:
                if error.status not in (404, 410):  # the session is lost: start over
                    raise
        raise RequestFailed(410, "the upload session was lost %d times" % _SESSIONS)

    def _send_whole(self, url: str, metadata: dict[str, str], source: SourceFile) -> StoredObject:
        boundary = uuid.uuid4().hex
        head = "--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%s\r\nContent-Type: %s\r\n\r\n" % (
            boundary,
            json.dumps({**metadata, "md5Hash": source.md5}),
            boundary,
            metadata["contentType"],
        )
        body = b"".join((head.encode("ascii"), source.read(0), b"\r\n--%s--" % boundary.encode("ascii")))
        kind = "multipart/related; boundary=" + boundary
        return StoredObject.read(self._storage.request("POST", url, body, Content_Type=kind).json())

    def _begin(self, url: str, metadata: dict[str, str], source: SourceFile) -> str:
        answer = self._storage.request(
            "POST",
            url,
            json.dumps(metadata).encode("ascii"),
            Content_Type="application/json",
            X_Upload_Content_Length=str(source.size),
            X_Upload_Content_Type=metadata["contentType"],
        )
        return answer.headers["Location"]

    def _send(self, session: str, source: SourceFile) -> Response:
        """Send all of a file. After a failure ask how much was stored; only failures without progress count."""
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

    def _put(self, session: str, source: SourceFile, offset: int | None) -> Response:
        """Send what follows ``offset`` as one stream; None sends nothing and asks for the offset.

        The last chunk is a request of its own, with the checksum of all: it is known when the others have been read.
        """
        last = (source.size - 1) // CHUNK_BYTES * CHUNK_BYTES
        if offset is None or offset == source.size:
            return self._storage.once("PUT", session, Content_Range="bytes */%d" % source.size)
        end = last if offset < last else source.size
        span = "bytes %d-%d/%d" % (offset, end - 1, source.size)
        if offset < last:
            blocks = source.blocks(offset, last)
            return self._storage.once("PUT", session, blocks, Content_Length=str(last - offset), Content_Range=span)
        data = source.read(offset)
        return self._storage.once("PUT", session, data, X_Goog_Hash="md5=" + source.md5, Content_Range=span)


def _kept(answer: Response) -> int:
    """Return how many bytes a 308 says are safe: ``Range: bytes=0-41`` means 42, no header means none."""
    last = answer.headers.get("Range", "").rpartition("-")[2]
    return int(last) + 1 if last else 0
