"""The checkpoints of one run in its bucket.

::

    <prefix>/attempts/<n>.json                          attempt n exists: whoever sees a higher one writes no more
    <prefix>/attempt-<n>/<order>.<name>/<file>          never overwritten by another attempt
    <prefix>/attempt-<n>/<order>.<name>/MANIFEST.json   written last, deleted first: with it, all of it is there
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Dict, NamedTuple, Optional

import protocol

from checkpoints.manifest import MANIFEST
from gcs.objects import Fetch, Objects
from gcs.requests import Storage
from gcs.upload import Occupied, Source, Stored, split_uri
from machine import processes
from machine.run_dir import RunDir

_OBJECT = re.compile(protocol.CHECKPOINT_FOLDER + "/(.+)", re.DOTALL)
_CLAIM = re.compile(r"attempts/(\d+)\.json")
_BINARY = "application/octet-stream"


class Overtaken(Exception):
    """Another attempt, or another machine with this one's number, has taken the run over."""


class Kept(NamedTuple):
    """One checkpoint in the bucket.

    :param order: the newer, the higher.
    :param name: of its directory on the machine.
    :param objects: by their names below the checkpoint, the manifest included.
    """

    attempt: int
    order: int
    name: str
    objects: Dict[str, Stored]

    @property
    def folder(self) -> str:
        """Its place below the prefix."""
        return folder(self.attempt, self.order, self.name)

    @property
    def manifest(self) -> Optional[Stored]:
        """The manifest's object; without one, the checkpoint is not complete."""
        return self.objects.get(MANIFEST)


def folder(attempt: int, order: int, name: str) -> str:
    """Where a checkpoint goes."""
    return "attempt-%d/%012d.%s" % (attempt, order, name)


class Remote:
    """Reads and writes below the prefix. A bucket that does not answer is :class:`gcs.requests.Failure`.

    :param uri: ``gs://bucket/prefix``.
    :param storage: the service.
    :param run: the attempt whose checkpoints are written.
    :raises ValueError: if the URI is none.
    """

    def __init__(self, uri: str, storage: Storage, run: RunDir) -> None:
        bucket, prefix = split_uri(uri)
        self.uri = "gs://%s/%s" % (bucket, prefix)
        self._bucket = Objects(storage, bucket)
        self._prefix = prefix + "/"
        self._run = run
        self._claimed = False

    def claim(self) -> None:
        """Write down that this attempt exists; once more does no harm.

        :raises Overtaken: if another machine has written this attempt down.
        """
        if self._claimed:
            return
        who = {"run": self._run.run, "attempt": self._run.attempt, "directory": str(self._run.path)}
        who.update(host=socket.gethostname(), boot_id=processes.boot_id())
        paper = self._run.path / ".claim"
        paper.write_text(json.dumps(who, sort_keys=True))
        with Source(paper) as source:
            source.hash()
            name = "%sattempts/%d.json" % (self._prefix, self._run.attempt)
            try:
                self._bucket.upload(source, name, None, "application/json")
            except Occupied as error:
                raise Overtaken("attempt %d runs on another machine" % self._run.attempt) from error
        self._claimed = True

    def look(self) -> list[Kept]:
        """Return all checkpoints, complete or not, the newest first.

        :raises Overtaken: if there is a later attempt.
        """
        found: dict[tuple[int, int, str], dict[str, Stored]] = {}
        for name, stored in self._entries("").items():
            match = _OBJECT.fullmatch(name)
            if match is not None:
                key = (int(match.group(2)), int(match.group(1)), match.group(3))
                found.setdefault(key, {})[match.group(4)] = stored
        return [Kept(key[1], key[0], key[2], found[key]) for key in sorted(found, reverse=True)]

    def check_claims(self) -> None:
        """Make sure that no later attempt has begun.

        :raises Overtaken: if one has.
        """
        self._entries("attempts/")

    def _entries(self, below: str) -> dict[str, Stored]:
        listed = self._bucket.entries(self._prefix + below)
        entries = {name[len(self._prefix) :]: stored for name, stored in listed.items()}
        self._refuse_later(entries)
        return entries

    def _refuse_later(self, entries: dict[str, Stored]) -> None:
        claims = [match for match in map(_CLAIM.fullmatch, entries) if match is not None]
        latest = max((int(match.group(1)) for match in claims), default=0)
        if latest > self._run.attempt:
            raise Overtaken("attempt %d has taken over" % latest)

    def read(self, kept: Kept, name: str) -> bytes:
        """Return one small file of a checkpoint."""
        return self._bucket.read(self._object(kept.folder, name), kept.objects[name])

    def fetch(self, kept: Kept, names: list[str], target: Path) -> None:
        """Bring files of a checkpoint to ``target``."""
        self._bucket.fetch([Fetch(self._object(kept.folder, one), kept.objects[one], target / one) for one in names])

    def put(self, place: str, name: str, source: Source, known: Optional[Stored]) -> Stored:
        """Upload one file of a checkpoint; ``known`` is what may be replaced."""
        return self._bucket.upload(source, self._object(place, name), known, _BINARY)

    def copy(self, kept: Kept, name: str, place: str, target: str) -> Stored:
        """Make a file of a new checkpoint from one of an older one."""
        return self._bucket.copy(self._object(kept.folder, name), self._object(place, target))

    def remove(self, kept: Kept) -> None:
        """Delete a checkpoint, its manifest first: half-deleted it counts as incomplete."""
        names = sorted(kept.objects, key=lambda name: (name != MANIFEST, name))
        for name in names:
            self._bucket.delete(self._object(kept.folder, name), kept.objects[name].generation)

    def retract(self, kept: Kept) -> None:
        """Delete only the manifest: the checkpoint does not count any more, and may be written anew."""
        if kept.manifest is not None:
            self._bucket.delete(self._object(kept.folder, MANIFEST), kept.manifest.generation)

    def _object(self, place: str, name: str) -> str:
        return "%s%s/%s" % (self._prefix, place, name)
