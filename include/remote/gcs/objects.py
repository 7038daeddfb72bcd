# SPDX-License-Identifier: Apache-2.0
"""Reads objects, downloads them into files, copies them within the bucket, deletes them."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from gcs.download import TargetFile
from gcs.requests import RequestFailed
from gcs.source import CHUNK_BYTES
from gcs.upload import Bucket, StoredObject

_AT_ONCE = 16


class ObjectDamaged(Exception):
    """An object is missing or differs from the listing: another request would not help."""


class Fetch(NamedTuple):
    """One object to download into a file.

    :param name: of the object.
    :param stored: as it was listed; exactly this generation is read.
    :param path: of the file, which is created with its directories.
    """

    name: str
    stored: StoredObject
    path: Path


class Objects(Bucket):
    """A bucket whose objects are also read, copied and deleted."""

    def read(self, name: str, stored: StoredObject, first: int = 0, size: int | None = None) -> bytes:
        """Return some bytes of one generation of an object.

        :raises ObjectDamaged: if it is gone, or shorter than listed.
        :raises RequestFailed: if the bucket cannot be read.
        """
        wanted = stored.size - first if size is None else size
        if wanted == 0:
            return b""
        url = "%s?alt=media&generation=%d" % (self._url(name), stored.generation)
        try:
            body = self._storage.request("GET", url, Range="bytes=%d-%d" % (first, first + wanted - 1)).body
        except RequestFailed as error:
            if error.status in (404, 416):
                raise ObjectDamaged("%s is gone" % name) from error
            raise
        if len(body) != wanted:
            raise ObjectDamaged("%s gave %d bytes instead of %d" % (name, len(body), wanted))
        return body

    def fetch(self, wanted: list[Fetch]) -> None:
        """Download objects into files, several pieces at a time, and check each against its MD5, where it has one.

        :raises ObjectDamaged: as :meth:`read`, or if a file has another checksum than its object.
        :raises RequestFailed: if the bucket cannot be read.
        """
        targets = [(one, TargetFile(one.path, one.stored.size)) for one in wanted]
        try:
            with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self._piece, [(*each, first) for each in targets for first in each[1].pieces]))
        finally:
            for _, target in targets:
                target.close()

    def _piece(self, piece: tuple[Fetch, TargetFile, int]) -> None:
        one, target, first = piece
        data = self.read(one.name, one.stored, first, min(CHUNK_BYTES, one.stored.size - first))
        if not target.write(first, data):
            return
        md5 = self.checked(one.name, one.stored).md5
        if md5 and md5 != target.md5:
            raise ObjectDamaged("%s has another checksum than the bucket says" % one.name)
        target.close()

    def checked_all(self, wanted: dict[str, StoredObject]) -> dict[str, StoredObject]:
        """Return listed objects with their checksums; see :meth:`checked`."""
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(wanted, pool.map(self.checked, wanted, wanted.values())))

    def copy(self, source: str, target: str) -> StoredObject:
        """Copy an object inside the bucket, without a download.

        https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite

        :raises RequestFailed: if the bucket refuses, or ``target`` exists (412).
        """
        url = "%s/rewriteTo%s/%s?ifGenerationMatch=0" % (self._url(source), self._objects, quote(target, safe=""))
        token = ""
        while True:
            answer = self._storage.request("POST", url + ("&rewriteToken=" + quote(token, safe="") if token else ""))
            document = answer.json()
            if document.get("done", True):
                return StoredObject.read(document["resource"])
            token = document["rewriteToken"]

    def delete(self, name: str, generation: int) -> None:
        """Delete one generation of an object; one that does not exist is no error.

        :raises RequestFailed: if the bucket refuses.
        """
        try:
            self._storage.request("DELETE", "%s?ifGenerationMatch=%d" % (self._url(name), generation))
        except RequestFailed as error:
            if error.status not in (404, 412):
                raise
