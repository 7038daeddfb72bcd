"""The push command: output and log into a bucket, from here, so that no byte takes the way through Airflow."""

from __future__ import annotations

import concurrent.futures
import json
import mimetypes
from pathlib import Path
from typing import Any, BinaryIO, Callable, NamedTuple

import protocol

from gcs.requests import Failure, Storage
from gcs.upload import Bucket, Changed, Source, Stored, split_uri
from machine import output_tree, state
from machine.run_dir import RunDir

_AT_ONCE = 8
_TRIES_IF_CHANGED = 2
MANIFEST_VERSION = 1


class Upload(NamedTuple):
    """One file that is to become an object.

    :param name: of the object, relative to the destination.
    :param growing: whether it may grow meanwhile.
    """

    name: str
    path: Path
    growing: bool = False


class Outcome(NamedTuple):
    """:param stored: None if ``reason`` says why not."""

    upload: Upload
    stored: Stored | None
    reason: str = ""


class Reports:
    """Tells the client how far a push has come.

    :param out: the client.
    :param alive: is called when it has taken a message.
    """

    def __init__(self, out: BinaryIO, alive: Callable[[], None]) -> None:
        self._out = out
        self._alive = alive

    def send(self, done: int, total: int, last: Outcome | None) -> None:
        """Tell of one file, or with None that it goes on."""
        path = last.upload.name if last else ""
        size = last.stored.size if last and last.stored else 0
        self._out.write(protocol.encode(protocol.UPLOADED, done=done, total=total, path=path, size=size))
        self._out.flush()
        self._alive()


class Destination:
    """``gs://bucket/prefix`` and what was there before.

    :raises ValueError: if the URI is none.
    :raises Failure: if the bucket cannot be asked.
    """

    def __init__(self, uri: str, storage: Storage) -> None:
        bucket, prefix = split_uri(uri)
        self.uri = "gs://%s/%s" % (bucket, prefix)
        self.prefix = prefix + "/"
        self._bucket = Bucket(storage, bucket)
        self._known = self._bucket.listing(self.prefix)

    def bring(self, upload: Upload) -> Outcome:
        """Upload one file; never raises for what concerns this file alone."""
        reason = ""
        for _ in range(_TRIES_IF_CHANGED):
            try:
                return Outcome(upload, self.store(upload))
            except (Changed, Failure, OSError, ValueError, KeyError) as error:
                reason = str(error)
                if not isinstance(error, Changed):
                    break
        return Outcome(upload, None, reason)

    def store(self, upload: Upload) -> Stored:
        """Upload one file.

        :raises Failure: the bucket refuses.
        :raises Changed: the file does not keep still.
        """
        name = self.prefix + upload.name
        content_type = mimetypes.guess_type(upload.name)[0] or "application/octet-stream"
        with Source(upload.path, upload.growing) as source:
            source.hash()
            try:
                stored = self._bucket.upload(source, name, self._known.get(name), content_type)
            except Failure:
                source.check()  # a checksum that does not fit is explained by a file that does not keep still
                raise
            self._known[name] = stored
            source.check()
            return stored


def _nobody() -> None:
    """Nobody has to be told that the push goes on."""


def push(run: RunDir, uri: str, out: BinaryIO, alive: Callable[[], None] = _nobody) -> None:
    """Push an attempt's output and log; the manifest comes last, so that its presence means complete.

    :param run: the attempt.
    :param uri: ``gs://bucket/prefix``.
    :param out: gets ``uploaded`` messages, at last ``pushed``.
    :param alive: is called whenever ``out`` has taken a message: somebody is still there.
    """
    destination = Destination(uri, Storage())
    entries = output_tree.scan(run.output, destination.prefix + protocol.OUTPUT_DIR + "/")
    reports = Reports(out, alive)
    outcomes = _bring_all(destination, _uploads(run, entries), reports)
    content = json.dumps(_manifest(entries, outcomes), sort_keys=True, indent=1).encode("ascii")
    path = run.path / protocol.MANIFEST_FILE
    path.write_bytes(content)
    destination.store(Upload(protocol.MANIFEST_FILE, path))
    manifest_uri = destination.uri + "/" + protocol.MANIFEST_FILE
    out.write(protocol.encode(protocol.PUSHED, uri=manifest_uri, length=len(content)) + content)


def _uploads(run: RunDir, entries: list[output_tree.Entry]) -> list[Upload]:
    good = [entry for entry in entries if not entry.reason and not entry.target]
    uploads = [Upload(protocol.OUTPUT_DIR + "/" + entry.name, entry.path) for entry in good]
    if run.log.exists():
        uploads.append(Upload(protocol.LOG_OBJECT, run.log, growing=state.look(run).name == state.RUNNING))
    return uploads


def _bring_all(destination: Destination, uploads: list[Upload], reports: Reports) -> list[Outcome]:
    """Upload a few at a time: one after the other is slow, all at once earns 503."""
    outcomes: list[Outcome] = []
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = {pool.submit(destination.bring, upload) for upload in uploads}
        try:
            while waiting:
                done, waiting = concurrent.futures.wait(
                    waiting, protocol.HEARTBEAT_SECS, concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    outcomes.append(future.result())
                    reports.send(len(outcomes), len(uploads), outcomes[-1])
                if not done:
                    reports.send(len(outcomes), len(uploads), None)
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
    return sorted(outcomes, key=lambda outcome: outcome.upload.name)


def _manifest(entries: list[output_tree.Entry], outcomes: list[Outcome]) -> dict[str, Any]:
    """No times and nothing of this machine: the same content pushed again gives the same bytes."""
    below = protocol.OUTPUT_DIR + "/"
    return {
        "version": MANIFEST_VERSION,
        "files": [_file(outcome.upload.name, outcome.stored) for outcome in outcomes if outcome.stored],
        "links": [{"path": below + entry.name, "target": below + entry.target} for entry in entries if entry.target],
        "skipped": [{"path": below + entry.name, "reason": entry.reason} for entry in entries if entry.reason],
        "failed": [{"path": outcome.upload.name, "reason": outcome.reason} for outcome in outcomes if outcome.reason],
    }


def _file(name: str, stored: Stored) -> dict[str, Any]:
    return {
        "path": name,
        "size": stored.size,
        "md5": stored.md5,
        "crc32c": stored.crc32c,
        "generation": str(stored.generation),  # 64 bits: more than a JSON number keeps in every reader
    }
