# SPDX-License-Identifier: Apache-2.0
"""Wheels of an environment, kept in the bucket: the next TPU installs them in seconds, without the index.

``<wheels_uri>/<key>/`` holds the wheels and, written last, ``MANIFEST.json`` with the SHA-256 of each. The key is a
digest of what was asked for, of Python and platform, and of the image's packages, since pip counts these as installed.
Whatever is wrong with what lies there, the run goes on with the index, and writes it anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

from gcs.objects import Fetch, ObjectDamaged, Objects
from gcs.requests import RequestFailed, Storage
from gcs.source import FileChanged, SourceBytes, SourceFile
from gcs.upload import StoredObject, split_uri
from packages.log import say

VERSION = 1
_MANIFEST = "MANIFEST.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")
_MANIFEST_LIMIT = 4 * 1024 * 1024
LIMIT = 4 * 1024**3  # bytes of an environment that is kept; a larger one costs more to move than it saves
_TROUBLE = (ObjectDamaged, RequestFailed, FileChanged, OSError, ValueError, KeyError, TypeError)


def cache_key(*parts: object) -> str:
    """Return the name of an environment: equal for equal parts, on every machine."""
    return hashlib.sha256(json.dumps([VERSION, *parts]).encode("ascii")).hexdigest()[:32]


class WheelCache:
    """The wheels of one environment.

    :param uri: ``gs://bucket/prefix`` of all of them.
    :param key: of this one.
    """

    def __init__(self, uri: str, key: str) -> None:
        bucket, prefix = split_uri(uri)
        self._bucket = Objects(Storage(), bucket)
        self._prefix = "%s/%s/" % (prefix, key)

    def fetch(self, folder: Path) -> Optional[List[Path]]:
        """Download the wheels; None if they are not there, or not as they were written.

        :param folder: for the wheels, which is made anew.
        """
        try:
            return self._fetch(folder)
        except _TROUBLE as error:
            say("the kept wheels are not used, the index is asked instead: %s" % error)
            return None

    def _fetch(self, folder: Path) -> Optional[List[Path]]:
        listed = self._bucket.entries(self._prefix)
        stored = listed.get(self._prefix + _MANIFEST)
        if stored is None:
            return None
        if stored.size > _MANIFEST_LIMIT:
            raise ValueError("their manifest has %d bytes" % stored.size)
        wanted = _digests(json.loads(self._bucket.read(self._prefix + _MANIFEST, stored).decode("utf-8")))
        absent = sorted(name for name in wanted if self._prefix + name not in listed)
        if absent:
            raise ObjectDamaged("%s is missing" % ", ".join(absent))
        shutil.rmtree(str(folder), ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        names = [self._prefix + name for name in wanted]
        self._bucket.fetch([Fetch(name, listed[name], folder / name[len(self._prefix) :]) for name in names])
        for name, digest in wanted.items():
            if _sha256(folder / name) != digest:
                raise ObjectDamaged("%s is not what was kept" % name)
        return [folder / name for name in wanted]

    def store(self, wheels: List[Path]) -> bool:
        """Upload wheels, their manifest last; return whether they are there."""
        if not wheels or sum(path.stat().st_size for path in wheels) > LIMIT:
            return False
        try:
            listed = self._bucket.entries(self._prefix)
            for path in wheels:
                with SourceFile(path) as source:
                    self._put(source, path.name, listed)
            files = [{"name": path.name, "sha256": _sha256(path)} for path in wheels]
            content = json.dumps({"version": VERSION, "files": files}, sort_keys=True, indent=1).encode("ascii")
            self._put(SourceBytes(content), _MANIFEST, listed)
        except _TROUBLE as error:
            say("the wheels are not kept for the next TPU: %s" % error)
            return False
        return True

    def _put(self, source: SourceFile, name: str, listed: Dict[str, StoredObject]) -> None:
        whole = self._prefix + name
        self._bucket.upload(source, whole, listed.get(whole), "application/octet-stream")


def _digests(document: Any) -> Dict[str, str]:
    """Return the SHA-256 of each wheel.

    :raises ValueError: another release has written the manifest, or it names something that is no wheel.
    """
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError("their manifest is of another version")
    found = {str(entry["name"]): str(entry["sha256"]) for entry in document["files"]}
    odd = [name for name in found if not _NAME.fullmatch(name)]
    if odd or not found:
        raise ValueError("their manifest names %s" % (repr(odd[0]) if odd else "nothing"))
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1024 * 1024), b""):
            digest.update(block)
    return digest.hexdigest()
