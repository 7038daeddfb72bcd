# SPDX-License-Identifier: Apache-2.0
"""Makes one checkpoint durable: uploads its files, then its manifest, then removes the oldest checkpoints."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from checkpoints.bucket import CheckpointBucket, StoredCheckpoint
from checkpoints.local import LocalCheckpoint
from checkpoints.manifest import MANIFEST, VERSION, UnknownManifestVersion, parse
from gcs.objects import ObjectDamaged
from gcs.requests import RequestFailed
from gcs.source import FileChanged, SourceBytes, SourceFile
from gcs.upload import StoredObject
from machine.run_dir import RunDir

KEEP = 3
_AT_ONCE = 4  # the training needs the machine, too


class Torn(Exception):
    """A checkpoint that must not be uploaded: a file differs from its manifest, or its place is not ours to write."""


class Uploader:
    """Uploads the checkpoints of one attempt.

    :param bucket: where to.
    :param run: the attempt.
    """

    def __init__(self, bucket: CheckpointBucket, run: RunDir) -> None:
        self._bucket = bucket
        self._attempt = run.attempt

    def upload(self, one: LocalCheckpoint) -> None:
        """Return once the bucket holds all of a checkpoint, with its manifest.

        :raises Torn: if it must not be uploaded.
        :raises FileChanged: if it was written to meanwhile.
        :raises Overtaken: if a later attempt has begun.
        :raises RequestFailed: if the bucket refuses or does not answer.
        """
        self._bucket.claim()
        there = self._bucket.list_checkpoints()
        if self._is_there(one, [stored for stored in there if stored.manifest and stored.name == one.name]):
            return
        order = max((stored.order for stored in there), default=0) + 1 if one.order is None else one.order
        mine = StoredCheckpoint(self._attempt, order, one.name, {})
        mine = next((stored for stored in there if stored.folder == mine.folder), mine)
        if self._has_unknown_version(mine):
            raise Torn("the bucket holds a checkpoint of another version in its place")
        self._bucket.retract(mine)
        stored = self._upload(one, mine, there)
        self._bucket.check_claims()
        self._commit(one, mine, stored)

    def check_claims(self) -> None:
        """Make sure that no later attempt has begun.

        :raises Overtaken: if one has.
        :raises RequestFailed: if the bucket cannot be listed.
        """
        self._bucket.check_claims()

    def remove_old(self, newest: LocalCheckpoint) -> int:
        """Remove what is older than the newest few, and what earlier attempts left incomplete.

        Torn checkpoints of later steps that were passed over do not count among the few; checkpoints of another version
        are never removed.

        :return: bytes that were removed.
        :raises RequestFailed: if the bucket refuses; the checkpoints are as safe as before.
        """
        there = self._bucket.list_checkpoints()
        least = newest.order if newest.order is not None else max((stored.order for stored in there), default=0)
        reached = [stored for stored in there if (stored.order, stored.attempt) <= (least, self._attempt)]
        complete = [stored for stored in reached if stored.manifest]
        removed = 0
        for stored in complete[KEEP:] + [stored for stored in reached if not stored.manifest]:
            if not self._has_unknown_version(stored):
                self._bucket.remove(stored)
                removed += sum(one.size for one in stored.objects.values())
        return removed

    def _has_unknown_version(self, stored: StoredCheckpoint) -> bool:
        if stored.manifest is None:
            return False
        try:
            parse(self._bucket.read(stored, MANIFEST))
        except UnknownManifestVersion:
            return True
        except (ObjectDamaged, ValueError):
            return False
        return False

    def _is_there(self, one: LocalCheckpoint, complete: list[StoredCheckpoint]) -> bool:
        """Tell whether the bucket holds this content, of whatever attempt; of file sets only the newest counts."""
        if one.manifest:
            return any(self._is_same(one.manifest, stored) for stored in complete)
        return bool(complete) and self._is_same_set(one, complete[0])

    def _is_same(self, manifest: bytes, stored: StoredCheckpoint) -> bool:
        if stored.manifest is None or stored.manifest.size != len(manifest):
            return False
        stored = self._bucket.checked(stored)
        return stored.objects[MANIFEST].md5 == _md5(manifest) and not find_damage(manifest, stored)

    def _is_same_set(self, one: LocalCheckpoint, stored: StoredCheckpoint) -> bool:
        if set(stored.objects) - {MANIFEST} != set(one.files):
            return False
        contents = {name: (found.size, found.md5) for name, found in self._bucket.checked(stored).objects.items()}
        if any(_hashed(path) != contents[name] for name, path in one.files.items()):
            return False
        try:
            return parse(self._bucket.read(stored, MANIFEST)).links == one.links
        except (ObjectDamaged, ValueError):
            return False

    def _upload(
        self, one: LocalCheckpoint, mine: StoredCheckpoint, there: list[StoredCheckpoint]
    ) -> dict[str, StoredObject]:
        before = one.identity
        elsewhere = {} if one.manifest else _contents(self._twins(one, there))
        sizes = {size for size, _ in elsewhere}

        def upload_file(name: str) -> StoredObject:
            with SourceFile(one.files[name]) as source:
                twin = elsewhere.get((source.size, source.md5)) if source.size in sizes else None
                stored = self._upload_file(source, name, mine, twin)
                source.check()
            expected = one.checksums.get(name)
            if expected and expected != stored.crc32c:
                raise Torn("%s has another checksum than its manifest says" % name)
            return stored

        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            stored = {name: answer for name, answer in pool.map(lambda name: (name, upload_file(name)), one.files)}
        if one.identity != before:
            raise FileChanged("was written to while it was read")
        return stored

    def _twins(self, one: LocalCheckpoint, there: list[StoredCheckpoint]) -> list[StoredCheckpoint]:
        """Return the complete checkpoints of the bucket, with the checksums of what may be equal to a file here."""
        sizes = {path.stat().st_size for path in one.files.values()}
        return [self._bucket.checked(stored, sizes) for stored in there if stored.manifest]

    def _upload_file(
        self, source: SourceFile, name: str, mine: StoredCheckpoint, twin: tuple[StoredCheckpoint, str] | None
    ) -> StoredObject:
        """Copy a file inside the bucket if an older set has it: sets overlap for the most part."""
        known = mine.objects.get(name)
        if twin is not None and known is None:
            try:
                return self._bucket.copy(twin[0], twin[1], mine.folder, name)
            except RequestFailed as error:
                if error.status not in (404, 412):
                    raise
        return self._bucket.put(mine.folder, name, source, known)

    def _commit(self, one: LocalCheckpoint, mine: StoredCheckpoint, stored: dict[str, StoredObject]) -> None:
        source = SourceBytes(one.manifest or self._manifest_of(one, stored))
        self._bucket.put(mine.folder, MANIFEST, source, None)

    def _manifest_of(self, one: LocalCheckpoint, stored: dict[str, StoredObject]) -> bytes:
        document: dict[str, Any] = {
            "schema_version": VERSION,
            "layout": "files",
            "created": round(time.time(), 3),
            "step": one.step,
            "attempt": self._attempt,
            "reason": "mirror",
            "files": [
                {"path": name, "size": found.size, "crc32c": found.crc32c, "md5": found.md5}
                for name, found in sorted(stored.items())
            ],
            "links": one.links,
            "left_out": list(one.left_out),
        }
        return json.dumps(document, sort_keys=True, indent=1).encode("ascii")


def _hashed(path: Path) -> tuple[int, str]:
    with SourceFile(path) as source:
        return source.size, source.md5


def _contents(there: list[StoredCheckpoint]) -> dict[tuple[int, str], tuple[StoredCheckpoint, str]]:
    """Map each content to a checkpoint that has it; of several the newest, which lives longest."""
    found: dict[tuple[int, str], tuple[StoredCheckpoint, str]] = {}
    for checkpoint in reversed(there):
        objects = checkpoint.objects.items()
        found.update({(stored.size, stored.md5): (checkpoint, name) for name, stored in objects if stored.md5})
    return found


def _md5(content: bytes) -> str:
    digest = hashlib.md5(content)  # noqa: S324 - the checksum that Cloud Storage computes; no security rests on it
    return base64.b64encode(digest.digest()).decode("ascii")


def find_damage(manifest: bytes, stored: StoredCheckpoint) -> str:
    """Return how a checkpoint in the bucket differs from its manifest, empty if it does not.

    A checksum that the bucket does not tell is no difference.
    """
    for entry in parse(manifest).files:
        found = stored.objects.get(entry.path)
        if found is None:
            return "%s is missing" % entry.path
        if found.size != entry.size:
            return "%s has %d bytes instead of %d" % (entry.path, found.size, entry.size)
        if entry.crc32c and found.crc32c and entry.crc32c != found.crc32c:
            return "%s has another checksum than its manifest says" % entry.path
    return ""
