"""Makes one checkpoint durable: files first, then its manifest, then the oldest ones go."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from checkpoints.local import Candidate
from checkpoints.manifest import MANIFEST, parse
from checkpoints.remote import Kept, Remote, folder
from gcs.objects import Damaged
from gcs.requests import Failure
from gcs.upload import Changed, Source, Stored
from machine.run_dir import RunDir

KEEP = 3
_AT_ONCE = 4  # the training wants the machine, too


class Torn(Exception):
    """A file is not what the script's own manifest says: this checkpoint is no good, here or anywhere."""


class Uploader:
    """Brings checkpoints of one attempt into its bucket.

    :param remote: the bucket.
    :param run: the attempt.
    """

    def __init__(self, remote: Remote, run: RunDir) -> None:
        self._remote = remote
        self._attempt = run.attempt
        self._paper = run.path / ".mirrored-manifest"

    def secure(self, one: Candidate) -> None:
        """Return once the bucket holds all of a checkpoint, with its manifest.

        :raises Torn: if it is not worth keeping.
        :raises Changed: if it was written to meanwhile.
        :raises Overtaken: if a later attempt has begun.
        :raises Failure: if the bucket refuses or does not answer.
        """
        self._remote.claim()
        there = self._remote.look()
        if self._is_there(one, [kept for kept in there if kept.manifest and kept.name == one.name]):
            return
        order = max((kept.order for kept in there), default=0) + 1 if one.order is None else one.order
        place = folder(self._attempt, order, one.name)
        mine = next((kept for kept in there if kept.folder == place), Kept(self._attempt, order, one.name, {}))
        self._remote.retract(mine)
        stored = self._upload(one, mine, there)
        self._remote.check_claims()
        self._commit(one, mine, stored)

    def check_claims(self) -> None:
        """Make sure that no later attempt has begun.

        :raises Overtaken: if one has.
        :raises Failure: if the bucket does not say.
        """
        self._remote.check_claims()

    def retire(self, newest: Candidate) -> None:
        """Remove what is older than the newest few, and what earlier attempts left half-done.

        Torn checkpoints of later steps that were passed over take no place among the few.

        :raises Failure: if the bucket refuses; the checkpoints are as safe as before.
        """
        there = self._remote.look()
        least = newest.order if newest.order is not None else max((kept.order for kept in there), default=0)
        reached = [kept for kept in there if (kept.order, kept.attempt) <= (least, self._attempt)]
        complete = [kept for kept in reached if kept.manifest]
        for kept in complete[KEEP:] + [kept for kept in reached if not kept.manifest]:
            self._remote.remove(kept)

    def _is_there(self, one: Candidate, complete: list[Kept]) -> bool:
        """Tell whether the bucket holds this very content, of whatever attempt; of sets only the newest counts."""
        if one.manifest:
            md5 = _md5(one.manifest)
            same = (kept for kept in complete if kept.manifest is not None and kept.manifest.md5 == md5)
            return any(not problem_of(one.manifest, kept) for kept in same)
        return bool(complete) and self._is_same_set(one, complete[0])

    def _is_same_set(self, one: Candidate, kept: Kept) -> bool:
        stored = {name: (found.size, found.md5) for name, found in kept.objects.items() if name != MANIFEST}
        if set(stored) != set(one.files) or any(_hashed(path) != stored[name] for name, path in one.files.items()):
            return False
        try:
            return parse(self._remote.read(kept, MANIFEST)).links == one.links
        except (Damaged, ValueError):
            return False

    def _upload(self, one: Candidate, mine: Kept, there: list[Kept]) -> dict[str, Stored]:
        before = one.identity
        elsewhere = {} if one.manifest else _contents(there)

        def bring(name: str) -> Stored:
            with Source(one.files[name]) as source:
                source.hash()
                stored = self._bring(source, name, mine, elsewhere.get((source.size, source.md5)))
                source.check()
            expected = one.checksums.get(name)
            if expected and expected != stored.crc32c:
                raise Torn("%s has another checksum than its manifest says" % name)
            return stored

        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            stored = {name: answer for name, answer in pool.map(lambda name: (name, bring(name)), one.files)}
        if one.identity != before:
            raise Changed("was written to while it was read")
        return stored

    def _bring(self, source: Source, name: str, mine: Kept, twin: tuple[Kept, str] | None) -> Stored:
        """A file that an older set has as well is copied inside the bucket: sets overlap for the most part."""
        known = mine.objects.get(name)
        if twin is not None and known is None:
            try:
                return self._remote.copy(twin[0], twin[1], mine.folder, name)
            except Failure as error:
                if error.status not in (404, 412):
                    raise
        return self._remote.put(mine.folder, name, source, known)

    def _commit(self, one: Candidate, mine: Kept, stored: dict[str, Stored]) -> None:
        self._paper.write_bytes(one.manifest or self._made_up(one, stored))
        with Source(self._paper) as source:
            source.hash()
            self._remote.put(mine.folder, MANIFEST, source, None)

    def _made_up(self, one: Candidate, stored: dict[str, Stored]) -> bytes:
        document: dict[str, Any] = {
            "schema_version": 1,
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
    with Source(path) as source:
        source.hash()
        return source.size, source.md5


def _contents(there: list[Kept]) -> dict[tuple[int, str], tuple[Kept, str]]:
    """Where each content can be copied from; of several places the newest, which lives longest."""
    found: dict[tuple[int, str], tuple[Kept, str]] = {}
    for kept in reversed(there):
        if kept.manifest:
            found.update({(stored.size, stored.md5): (kept, name) for name, stored in kept.objects.items()})
    return found


def _md5(content: bytes) -> str:
    digest = hashlib.md5(content)  # noqa: S324 - the checksum that Cloud Storage computes; no security rests on it
    return base64.b64encode(digest.digest()).decode("ascii")


def problem_of(manifest: bytes, kept: Kept) -> str:
    """Why a checkpoint in the bucket is not what its manifest says, empty if it is."""
    for entry in parse(manifest).files:
        found = kept.objects.get(entry.path)
        if found is None:
            return "%s is missing" % entry.path
        if found.size != entry.size:
            return "%s has %d bytes instead of %d" % (entry.path, found.size, entry.size)
        if entry.crc32c and entry.crc32c != found.crc32c:
            return "%s has another checksum than its manifest says" % entry.path
    return ""
