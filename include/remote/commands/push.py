# SPDX-License-Identifier: Apache-2.0
"""The push command: uploads output and log from the TPU VM, so that no byte passes through Airflow."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import mimetypes
import queue
import threading
from pathlib import Path
from typing import Any, BinaryIO, Callable, NamedTuple

import protocol

from gcs.requests import RequestFailed, Storage
from gcs.source import CHUNK_BYTES, FileChanged, SourceBytes, SourceFile
from gcs.upload import Bucket, StoredObject, split_uri
from machine import output_tree, state, working_dir
from machine.run_dir import RunDir

_AT_ONCE = 32  # of small files most of the time is spent waiting for the answer
_LARGE_AT_ONCE = 8  # each of them has three chunks in memory
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


class UploadResult(NamedTuple):
    """What became of one upload.

    :param stored: the object, None if ``reason`` says why there is none.
    """

    upload: Upload
    stored: StoredObject | None
    reason: str = ""


class ProgressReporter:
    """Reports the progress of a push to the client.

    :param out: the client.
    :param alive: called after each message that the client has taken.
    """

    def __init__(self, out: BinaryIO, alive: Callable[[], None]) -> None:
        self._out = out
        self._alive = alive

    def send(self, done: int, total: int, last: UploadResult | None) -> None:
        """Report one file, or a heartbeat if ``last`` is None."""
        path = last.upload.name if last else ""
        size = last.stored.size if last and last.stored else 0
        self._out.write(protocol.encode(protocol.UPLOADED, done=done, total=total, path=path, size=size))
        self._out.flush()
        self._alive()


class Destination:
    """``gs://bucket/prefix`` and the objects that were there before.

    :raises ValueError: if the URI has another form.
    :raises RequestFailed: if the bucket cannot be listed.
    """

    def __init__(self, uri: str, storage: Storage) -> None:
        bucket, prefix = split_uri(uri)
        self.uri = "gs://%s/%s" % (bucket, prefix)
        self.prefix = prefix + "/"
        self._bucket = Bucket(storage, bucket)
        self._known = self._bucket.listing(self.prefix)
        self._large = threading.BoundedSemaphore(_LARGE_AT_ONCE)

    def try_store(self, upload: Upload) -> UploadResult:
        """Upload one file; a failure that concerns this file alone becomes a reason."""
        reason = ""
        for _ in range(_TRIES_IF_CHANGED):
            try:
                return UploadResult(upload, self.store(upload))
            except (FileChanged, RequestFailed, OSError, ValueError, KeyError) as error:
                reason = str(error)
                if not isinstance(error, FileChanged):
                    break
        return UploadResult(upload, None, reason)

    def store(self, upload: Upload) -> StoredObject:
        """Upload one file.

        :raises RequestFailed: if the bucket refuses.
        :raises FileChanged: if the file is being written to.
        """
        with SourceFile(upload.path, upload.growing) as source:
            try:
                stored = self._upload(upload.name, source)
            except RequestFailed:
                source.check()  # a changing file explains a checksum that does not fit
                raise
            source.check()
            return stored

    def store_bytes(self, name: str, content: bytes) -> None:
        """Upload what is no file here.

        :raises RequestFailed: if the bucket refuses.
        """
        self._upload(name, SourceBytes(content))

    def _upload(self, relative: str, source: SourceFile) -> StoredObject:
        name = self.prefix + relative
        content_type = mimetypes.guess_type(relative)[0] or "application/octet-stream"
        with self._large if source.size > CHUNK_BYTES else contextlib.nullcontext():
            stored = self._known[name] = self._bucket.upload(source, name, self._known.get(name), content_type)
        return stored


def _ignore() -> None:
    """Do nothing: the guard's push is no contact with Airflow."""


def push(run: RunDir, uri: str, out: BinaryIO, alive: Callable[[], None] = _ignore) -> None:
    """Push an attempt's output and log; the manifest comes last, so that its presence means complete.

    :param run: the attempt.
    :param uri: ``gs://bucket/prefix``.
    :param out: receives ``uploaded`` messages, at last ``pushed``.
    :param alive: called after each message that ``out`` has taken.
    """
    destination = Destination(uri, Storage())
    entries = _entries(run, destination.prefix)
    progress = ProgressReporter(out, alive)
    results = _upload_all(destination, _uploads(run, entries), progress)
    content = json.dumps(_manifest(run, entries, results), sort_keys=True, indent=1).encode("ascii")
    destination.store_bytes(protocol.MANIFEST_FILE, content)
    manifest_uri = destination.uri + "/" + protocol.MANIFEST_FILE
    out.write(protocol.encode(protocol.PUSHED, uri=manifest_uri, length=len(content)) + content)


def _entries(run: RunDir, prefix: str) -> list[output_tree.OutputFile]:
    output = output_tree.scan(run.output, prefix + protocol.OUTPUT_DIR + "/")
    left = working_dir.left_files(run, prefix + protocol.WORKING_DIR + "/")
    return [
        *(entry.below(protocol.OUTPUT_DIR) for entry in output),
        *(entry.below(protocol.WORKING_DIR) for entry in left),
    ]


def _uploads(run: RunDir, entries: list[output_tree.OutputFile]) -> list[Upload]:
    good = [entry for entry in entries if not entry.reason and not entry.target]
    uploads = [Upload(entry.name, entry.path) for entry in good]
    if run.log.exists():
        uploads.append(Upload(protocol.LOG_OBJECT, run.log, growing=state.observe(run).name == state.RUNNING))
    if (run.path / protocol.ENVIRONMENT_FILE).exists():
        uploads.append(Upload(protocol.ENVIRONMENT_FILE, run.path / protocol.ENVIRONMENT_FILE))
    return uploads


def _upload_all(destination: Destination, uploads: list[Upload], progress: ProgressReporter) -> list[UploadResult]:
    """Upload some at a time: one after the other is slow, all at once earns 503."""
    results: list[UploadResult] = []
    done: queue.SimpleQueue[concurrent.futures.Future[UploadResult]] = queue.SimpleQueue()
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(destination.try_store, upload) for upload in uploads]
        try:
            for future in futures:
                future.add_done_callback(done.put)
            while len(results) < len(uploads):
                try:
                    results.append(done.get(timeout=protocol.HEARTBEAT_SECS).result())
                except queue.Empty:
                    progress.send(len(results), len(uploads), None)
                else:
                    progress.send(len(results), len(uploads), results[-1])
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    return sorted(results, key=lambda result: result.upload.name)


def _manifest(run: RunDir, entries: list[output_tree.OutputFile], results: list[UploadResult]) -> dict[str, Any]:
    """No times and nothing of this machine: the same content pushed again gives the same bytes."""
    job = run.read(protocol.JOB_FILE) or {}
    return {
        "version": MANIFEST_VERSION,
        "revision": job.get("environment", {}).get("TRC_REVISION", ""),
        "files": [_file(result.upload.name, result.stored) for result in results if result.stored],
        "links": [{"path": entry.name, "target": entry.target} for entry in entries if entry.target],
        "skipped": [{"path": entry.name, "reason": entry.reason} for entry in entries if entry.reason],
        "failed": [{"path": result.upload.name, "reason": result.reason} for result in results if result.reason],
    }


def _file(name: str, stored: StoredObject) -> dict[str, Any]:
    return {
        "path": name,
        "size": stored.size,
        "md5": stored.md5,
        "crc32c": stored.crc32c,
        "generation": str(stored.generation),  # 64 bits: more than a JSON number keeps in every reader
    }
