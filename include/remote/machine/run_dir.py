# SPDX-License-Identifier: Apache-2.0
"""Where an attempt keeps its files on the TPU VM, and how they are written so that no reader sees half of one.

Every JSON file of ours carries ``version``. One of another version belongs to a runner of another release: it is not
read, and the attempt is left as it is.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import protocol

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VERSION_FIELD = "version"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SPARE_BYTES = 4096  # a block: a file that has any byte has one
_LEVELS = 32
_INTEGER_DIGITS = 19


class UnknownRunVersion(ValueError):
    """A file was written by a runner of another release."""


class RunDir:
    """The directory of one attempt: ``~/.airflow-tpu/runs/<run>/attempt-<n>``.

    :param run: name of the run; it becomes a directory, so only lower-case letters, digits and hyphens.
    :param attempt: number of the attempt, from 1.
    :raises ValueError: if one of them could lead to another place.
    """

    def __init__(self, run: str, attempt: int) -> None:
        if not isinstance(run, str) or not _NAME.fullmatch(run):
            raise ValueError("run name %r: lower-case letters, digits and hyphens only, 63 at most" % (run,))
        if not isinstance(attempt, int) or attempt < 1:
            raise ValueError("attempt %r: a number from 1" % (attempt,))
        self.run = run
        self.attempt = attempt
        self.run_path = Path(os.path.expanduser("~")) / protocol.ROOT_DIR / protocol.RUNS_DIR / run
        self.path = self.run_path / ("attempt-%d" % attempt)
        self.bundle = self.path / protocol.BUNDLE_DIR
        self.output = self.path / protocol.OUTPUT_DIR
        self.log = self.path / protocol.LOG_FILE
        self.stop_file = self.path / protocol.STOP_FILE
        self.checkpoints = self.run_path / protocol.CHECKPOINT_DIR

    def read(self, name: str) -> dict[str, Any] | None:
        """Return one of our JSON files, None if it is not there (yet) or holds no object.

        :raises UnknownRunVersion: if a runner of another release has written it.
        """
        document = read_json(self.path / name)
        if document is None:
            return None
        version = document.pop(_VERSION_FIELD, None)
        if version != protocol.FILES_VERSION:
            found = "%s of attempt %d of %s has version %r" % (name, self.attempt, self.run, version)
            raise UnknownRunVersion("%s, this runner reads version %d; left as it is" % (found, protocol.FILES_VERSION))
        return document

    def write(self, name: str, document: dict[str, Any]) -> None:
        """Replace one of our JSON files; on a full disk in the bytes of :meth:`reserve`."""
        try:
            write_json(self.path / name, versioned(document))
        except OSError as error:
            if error.errno not in _FULL or not self._spare(name).exists():
                raise
            self._write_reserved(name, json.dumps(versioned(document)).encode("ascii"))

    def request_stop(self) -> None:
        """Create the stop file; on a full disk the reserved one gets its name."""
        try:
            self.stop_file.touch()
        except OSError as error:
            spare = self._spare(protocol.STOP_FILE)
            if error.errno not in _FULL or not spare.exists():
                raise
            os.replace(str(spare), str(self.stop_file))

    def reserve(self, *names: str) -> None:
        """Allocate the bytes with which :meth:`write` replaces files although the command has filled the disk.

        Twice: a file that has never been written yet has no bytes that could become the next spare.
        """
        for path in [path for name in names for path in (self._spare(name), self._former(name))]:
            descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(b" " * _SPARE_BYTES)
                file.flush()
                os.fsync(file.fileno())

    def _spare(self, name: str) -> Path:
        return self.path / ("." + name + ".reserved")

    def _former(self, name: str) -> Path:
        return self.path / ("." + name + ".former")

    def _write_reserved(self, name: str, content: bytes) -> None:
        """Overwrite the spare file and exchange it with the current one, whose bytes are the next spare.

        :raises ValueError: if the content needs more bytes than are reserved.
        """
        if len(content) > _SPARE_BYTES:
            raise ValueError("%s has %d bytes, %d are reserved" % (name, len(content), _SPARE_BYTES))
        path, spare, former = self.path / name, self._spare(name), self._former(name)
        with spare.open("r+b") as file:
            file.write(content.ljust(_SPARE_BYTES))
            os.fsync(file.fileno())
        if path.exists():
            with contextlib.suppress(FileNotFoundError):
                former.unlink()
            os.link(str(path), str(former))
        os.replace(str(spare), str(path))
        if former.exists():
            os.replace(str(former), str(spare))

    def check_version(self) -> None:
        """Make sure that the attempt, if it is here, was started by a runner that this one understands.

        :raises UnknownRunVersion: if it was not.
        """
        self.read(protocol.JOB_FILE)

    def log_size(self) -> int:
        """Bytes in the log now."""
        try:
            return self.log.stat().st_size
        except FileNotFoundError:
            return 0

    def progress(self) -> dict[str, Any] | None:
        """Return what the script last wrote to progress.json; the file is the script's and may hold anything."""
        return read_json(self.output / protocol.PROGRESS_FILE, limit=64 * 1024)


def versioned(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as it is written to a file of ours."""
    return {_VERSION_FIELD: protocol.FILES_VERSION, **document}


def read_json(path: Path, limit: int = 1024 * 1024) -> dict[str, Any] | None:
    """Return the object in a file; None if there is no such file, or no object of at most ``limit`` bytes in it."""
    try:
        # A FIFO of that name must not block the reader.
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK)
        try:
            text = os.read(descriptor, limit + 1)
        finally:
            os.close(descriptor)  # also that of a directory, which fdopen would leave open
        document = json.loads(text[:limit].decode("utf-8"), parse_constant=str, parse_float=_number, parse_int=_integer)
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and not _is_deep(document) else None


def _number(text: str) -> float | str:
    """A number that is not finite stays text: JSON does not know it."""
    value = float(text)
    return value if math.isfinite(value) else text


def _integer(text: str) -> int | str:
    """A number that needs more than 64 bits stays text: the reader of a message may refuse it."""
    return int(text) if len(text) < _INTEGER_DIGITS else text


def _is_deep(document: object, levels: int = _LEVELS) -> bool:
    """Tell whether a document has more levels than every reader of a message can be trusted with."""
    if not isinstance(document, (dict, list)):
        return False
    below = document.values() if isinstance(document, dict) else document
    return not levels or any(_is_deep(one, levels - 1) for one in below)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Replace a file by rename: a reader sees the old content or the new; only the owner may read it."""
    descriptor, temporary = tempfile.mkstemp(prefix="." + path.name + ".", dir=str(path.parent))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(document).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, str(path))
    except BaseException:
        os.unlink(temporary)
        raise


class ReservedFile:
    """A file whose bytes are allocated before they are needed: a full disk cannot keep the result from being recorded.

    :param path: final name; until :meth:`commit` the bytes lie beside it.
    :param size: most bytes the content may have.
    """

    def __init__(self, path: Path, size: int = 4096) -> None:
        self._path = path
        self._size = size
        self._temporary = path.with_name("." + path.name + ".reserved")
        self._descriptor = os.open(str(self._temporary), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        # Real bytes, not posix_fallocate: some file systems only promise them.
        os.write(self._descriptor, b" " * size)
        os.fsync(self._descriptor)

    def commit(self, document: dict[str, Any]) -> None:
        """Overwrite the reserved bytes in place and give the file its name.

        :raises ValueError: if the content needs more bytes than are reserved.
        """
        content = json.dumps(versioned(document)).encode("ascii")
        if len(content) > self._size:
            raise ValueError("the result has %d bytes, %d are reserved" % (len(content), self._size))
        os.pwrite(self._descriptor, content.ljust(self._size), 0)
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        os.replace(str(self._temporary), str(self._path))
