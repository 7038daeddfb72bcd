# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of one run in its bucket.

::

    <prefix>/attempts/<n>.json                          claim of attempt n: an attempt that sees a higher one stops;
                                                        it names the code that the attempt runs
    <prefix>/attempt-<n>/<order>.<name>/<file>          never overwritten by another attempt
    <prefix>/attempt-<n>/<order>.<name>/MANIFEST.json   written last, deleted first: it makes the checkpoint complete

Manifests and claims carry ``schema_version``. A checkpoint whose manifest has another version stays as it is. A claim
counts by its name alone, so that an attempt of any version fences off the earlier ones.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Set

import protocol

from checkpoints.manifest import MANIFEST
from gcs.objects import Fetch, Objects
from gcs.requests import Storage
from gcs.source import SourceBytes, SourceFile
from gcs.upload import ObjectConflict, StoredObject, split_uri
from machine import processes
from machine.run_dir import RunDir

_OBJECT = re.compile(protocol.CHECKPOINT_FOLDER + "/(.+)", re.DOTALL)
_CLAIM = re.compile(r"attempts/(\d+)\.json")
_CLAIM_VERSION = 1
_BINARY = "application/octet-stream"


class Overtaken(Exception):
    """A later attempt, or the same one on another machine, has taken the run over."""


class StoredCheckpoint(NamedTuple):
    """One checkpoint in the bucket.

    :param order: the newer, the higher.
    :param name: of its directory on the machine.
    :param objects: by their names below the checkpoint, the manifest included.
    """

    attempt: int
    order: int
    name: str
    objects: Dict[str, StoredObject]

    @property
    def folder(self) -> str:
        """Its place below the prefix."""
        return folder(self.attempt, self.order, self.name)

    @property
    def manifest(self) -> Optional[StoredObject]:
        """The manifest's object; a checkpoint without one is incomplete."""
        return self.objects.get(MANIFEST)


def folder(attempt: int, order: int, name: str) -> str:
    """Return the place of a checkpoint below the prefix."""
    return "attempt-%d/%012d.%s" % (attempt, order, name)


class CheckpointBucket:
    """Reads and writes checkpoints below a prefix; every failed request raises :class:`gcs.requests.RequestFailed`.

    :param uri: ``gs://bucket/prefix``.
    :param storage: the service.
    :param run: the attempt whose checkpoints are written.
    :raises ValueError: if the URI has another form.
    """

    def __init__(self, uri: str, storage: Storage, run: RunDir) -> None:
        bucket, prefix = split_uri(uri)
        self.uri = "gs://%s/%s" % (bucket, prefix)
        self._bucket = Objects(storage, bucket)
        self._prefix = prefix + "/"
        self._run = run
        self._claimed = False
        self._claims: Dict[int, StoredObject] = {}

    def claim(self) -> None:
        """Record that this attempt exists; a second call does nothing.

        :raises Overtaken: if another machine has claimed this attempt.
        """
        if self._claimed:
            return
        owner = {"run": self._run.run, "attempt": self._run.attempt, "directory": str(self._run.path)}
        owner.update(host=socket.gethostname(), boot_id=processes.boot_id(), schema_version=_CLAIM_VERSION)
        owner["code"] = (self._run.read(protocol.JOB_FILE) or {}).get("code") or ""
        source = SourceBytes(json.dumps(owner, sort_keys=True).encode("ascii"))
        try:
            self._bucket.upload(source, self._claim_name(self._run.attempt), None, "application/json")
        except ObjectConflict as error:
            raise Overtaken("attempt %d runs on another machine" % self._run.attempt) from error
        self._claimed = True

    def list_checkpoints(self) -> list[StoredCheckpoint]:
        """Return all checkpoints, complete or not, the newest first.

        :raises Overtaken: if there is a later attempt.
        """
        found: dict[tuple[int, int, str], dict[str, StoredObject]] = {}
        for name, stored in self._entries("").items():
            match = _OBJECT.fullmatch(name)
            if match is not None:
                key = (int(match.group(2)), int(match.group(1)), match.group(3))
                found.setdefault(key, {})[match.group(4)] = stored
        return [StoredCheckpoint(key[1], key[0], key[2], found[key]) for key in sorted(found, reverse=True)]

    def code_of(self, attempt: int) -> Optional[str]:
        """Return the digest of the code that an attempt ran, as its claim says; None if there is none.

        :raises ObjectDamaged: if the claim has gone since the checkpoints were listed.
        :raises ValueError: if it is damaged.
        """
        stored = self._claims.get(attempt)
        if stored is None:
            return None
        document = json.loads(self._bucket.read(self._claim_name(attempt), stored).decode("utf-8"))
        code = document.get("code") if isinstance(document, dict) else None
        return code if isinstance(code, str) else None

    def check_claims(self) -> None:
        """Make sure that no later attempt has begun.

        :raises Overtaken: if one has.
        """
        self._entries("attempts/")

    def _entries(self, below: str) -> dict[str, StoredObject]:
        listed = self._bucket.entries(self._prefix + below)
        entries = {name[len(self._prefix) :]: stored for name, stored in listed.items()}
        self._refuse_later(entries)
        return entries

    def _refuse_later(self, entries: dict[str, StoredObject]) -> None:
        matches = {name: _CLAIM.fullmatch(name) for name in entries}
        self._claims = {int(match.group(1)): entries[name] for name, match in matches.items() if match is not None}
        latest = max(self._claims, default=0)
        if latest > self._run.attempt:
            raise Overtaken("attempt %d has taken over" % latest)

    def checked(self, stored: StoredCheckpoint, sizes: Optional[Set[int]] = None) -> StoredCheckpoint:
        """Return a checkpoint whose objects have their checksums, also those that no listing tells.

        :param sizes: of the objects that matter, None for all.
        """
        asked = {name: one for name, one in stored.objects.items() if sizes is None or one.size in sizes}
        found = self._bucket.checked_all({self._object(stored.folder, name): one for name, one in asked.items()})
        return stored._replace(objects={**stored.objects, **dict(zip(asked, found.values()))})

    def read(self, stored: StoredCheckpoint, name: str) -> bytes:
        """Return one small file of a checkpoint."""
        return self._bucket.read(self._object(stored.folder, name), stored.objects[name])

    def fetch(self, stored: StoredCheckpoint, names: list[str], target: Path) -> None:
        """Download files of a checkpoint to ``target``."""
        objects = stored.objects
        self._bucket.fetch([Fetch(self._object(stored.folder, one), objects[one], target / one) for one in names])

    def put(self, place: str, name: str, source: SourceFile, known: Optional[StoredObject]) -> StoredObject:
        """Upload one file of a checkpoint; only ``known`` may be replaced."""
        return self._bucket.upload(source, self._object(place, name), known, _BINARY)

    def copy(self, stored: StoredCheckpoint, name: str, place: str, target: str) -> StoredObject:
        """Make a file of a new checkpoint from one of an older checkpoint."""
        return self._bucket.copy(self._object(stored.folder, name), self._object(place, target))

    def remove(self, stored: StoredCheckpoint) -> None:
        """Delete a checkpoint, its manifest first: half-deleted it counts as incomplete."""
        names = sorted(stored.objects, key=lambda name: (name != MANIFEST, name))
        for name in names:
            self._bucket.delete(self._object(stored.folder, name), stored.objects[name].generation)

    def retract(self, stored: StoredCheckpoint) -> None:
        """Delete only the manifest: the checkpoint becomes incomplete and may be written again."""
        if stored.manifest is not None:
            self._bucket.delete(self._object(stored.folder, MANIFEST), stored.manifest.generation)

    def _claim_name(self, attempt: int) -> str:
        return "%sattempts/%d.json" % (self._prefix, attempt)

    def _object(self, place: str, name: str) -> str:
        return "%s%s/%s" % (self._prefix, place, name)
