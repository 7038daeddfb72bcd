"""What is done to objects besides uploading them: read, fetch into files, copy within the bucket, delete."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from gcs.requests import Failure
from gcs.upload import CHUNK_BYTES, Bucket, Stored

_AT_ONCE = 8


class Damaged(Exception):
    """An object is missing or is not what was listed: asking again would not help."""


class Fetch(NamedTuple):
    """One object that is to become a file.

    :param name: of the object.
    :param stored: as it was listed; exactly this generation is read.
    :param path: of the file, which is made with its directories.
    """

    name: str
    stored: Stored
    path: Path


class Objects(Bucket):
    """A bucket whose objects are read, copied and deleted as well."""

    def read(self, name: str, stored: Stored, first: int = 0, size: int | None = None) -> bytes:
        """Return some bytes of one generation of an object.

        :raises Damaged: if it is gone, or shorter than listed.
        :raises Failure: if the bucket cannot be read.
        """
        wanted = stored.size - first if size is None else size
        if wanted == 0:
            return b""
        url = "%s?alt=media&generation=%d" % (self._url(name), stored.generation)
        try:
            body = self._storage.request("GET", url, Range="bytes=%d-%d" % (first, first + wanted - 1)).body
        except Failure as error:
            if error.status in (404, 416):
                raise Damaged("%s is gone" % name) from error
            raise
        if len(body) != wanted:
            raise Damaged("%s gave %d bytes instead of %d" % (name, len(body), wanted))
        return body

    def fetch(self, wanted: list[Fetch]) -> None:
        """Fill files with objects, several pieces at a time, and check each against its MD5.

        :raises Damaged: as :meth:`read`, or if a file has another checksum than its object.
        :raises Failure: if the bucket cannot be read.
        """
        pieces = [(one, first) for one in wanted for first in range(0, one.stored.size, CHUNK_BYTES)]
        for one in wanted:
            one.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            one.path.touch(mode=0o600)
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._piece, pieces))
            list(pool.map(_check, wanted))

    def _piece(self, piece: tuple[Fetch, int]) -> None:
        one, first = piece
        data = self.read(one.name, one.stored, first, min(CHUNK_BYTES, one.stored.size - first))
        descriptor = os.open(str(one.path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, data, first)
        finally:
            os.close(descriptor)

    def copy(self, source: str, target: str) -> Stored:
        """Make an object from another one without moving its bytes through here.

        https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite

        :raises Failure: if the bucket refuses, or ``target`` exists (412).
        """
        url = "%s/rewriteTo%s/%s?ifGenerationMatch=0" % (self._url(source), self._objects, quote(target, safe=""))
        token = ""
        while True:
            answer = self._storage.request("POST", url + ("&rewriteToken=" + quote(token, safe="") if token else ""))
            document = answer.json()
            if document.get("done", True):
                return Stored.read(document["resource"])
            token = document["rewriteToken"]

    def delete(self, name: str, generation: int) -> None:
        """Delete one generation of an object; if that is not there (any more), all is well.

        :raises Failure: if the bucket refuses.
        """
        try:
            self._storage.request("DELETE", "%s?ifGenerationMatch=%d" % (self._url(name), generation))
        except Failure as error:
            if error.status not in (404, 412):
                raise


def _check(one: Fetch) -> None:
    digest = hashlib.md5()  # noqa: S324 - the checksum that Cloud Storage computes; no security rests on it
    with one.path.open("rb") as file:
        for block in iter(lambda: file.read(1024 * 1024), b""):
            digest.update(block)
    if base64.b64encode(digest.digest()).decode("ascii") != one.stored.md5:
        raise Damaged("%s has another checksum than the bucket says" % one.name)
