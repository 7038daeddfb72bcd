# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that survive a kill at any instant: one directory per step, its manifest written last.

A directory without a manifest, or with a file that does not match it, is a torn checkpoint: it is named in the log
and skipped for the next older one. TensorFlow's own ``latest_checkpoint`` does neither: it returns a checkpoint
whose data is truncated (tensorflow/tensorflow#14608), and None when only the newest index is missing.

Any framework: the script only supplies ``write(directory)`` and reads ``Checkpoint.directory``.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trc.contract import EXIT_RESUME_REFUSED, EXIT_STORAGE, ContractExit
from trc.crc32c import crc32c_of
from trc.report import write_json

MANIFEST = "MANIFEST.json"
VERSION = 1  # of the manifest; the pipeline's mirror reads the same


@dataclass(frozen=True)
class CheckpointFile:
    """One file of a checkpoint: its path below the directory, bytes, and CRC-32C in base64."""

    path: str
    size: int
    crc32c: str


@dataclass(frozen=True)
class Checkpoint:
    """The manifest of one checkpoint.

    :param step: completed training steps.
    :param config_digest: digest of everything that shapes the run; only an equal one may be resumed.
    :param reason: periodic, signal or final.
    :param attempt: which attempt wrote it.
    :param files: what must be there, byte for byte.
    :param metrics: measured at this step, for people.
    :param directory: where the files are; not part of the manifest.
    """

    step: int
    config_digest: str
    reason: str
    attempt: int
    files: tuple[CheckpointFile, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    directory: Path = Path()

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        del document["directory"]
        return {"schema_version": VERSION, "created": round(time.time(), 3), **document}

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """Read a manifest and check every file against it.

        :raises UnknownVersion: if another release has written it.
        :raises TornCheckpoint: if anything is missing or different.
        """
        try:
            document = json.loads((directory / MANIFEST).read_bytes())
            _check_version(document)
            files = tuple(CheckpointFile(**entry) for entry in document["files"])
            names = ("step", "config_digest", "reason", "attempt", "metrics")
            found = cls(**{name: document[name] for name in names}, files=files, directory=directory)
        except FileNotFoundError:
            raise TornCheckpoint("it has no manifest") from None
        except (ValueError, KeyError, TypeError) as error:
            raise TornCheckpoint(f"its manifest is unreadable ({error})") from error
        for entry in found.files:
            _check(directory, entry)
        return found


class TornCheckpoint(Exception):
    """A checkpoint that was being written when the machine went away, or was damaged later."""


class UnknownVersion(Exception):
    """A checkpoint of another release of this library: it is neither resumed nor removed."""


def _check_version(document: Any) -> None:
    version = document.get("schema_version", VERSION) if isinstance(document, dict) else VERSION
    if version != VERSION:
        raise UnknownVersion(f"its manifest has version {version!r}, not {VERSION}")


def _check(directory: Path, entry: CheckpointFile) -> None:
    path = directory / entry.path
    if not path.is_file():
        raise TornCheckpoint(f"{entry.path} is missing")
    size = path.stat().st_size
    if size != entry.size:
        raise TornCheckpoint(f"{entry.path} has {size} bytes instead of {entry.size}")
    if crc32c_of(path) != entry.crc32c:
        raise TornCheckpoint(f"{entry.path} has another checksum than its manifest says")


class CheckpointStore:
    """The checkpoints of one run in one directory.

    :param directory: made when the first checkpoint is written.
    :param config_digest: of the run as it is configured now.
    :param attempt: recorded in the manifests.
    :param keep: how many of the newest to keep.
    :param say: receives one line about each checkpoint that is skipped.
    """

    def __init__(
        self, directory: Path, config_digest: str, attempt: int = 1, keep: int = 3, say: Callable[[str], None] = print
    ) -> None:
        self.directory = directory
        self._digest = config_digest
        self._attempt = attempt
        self._keep = keep
        self._say = say

    def commit(
        self, step: int, write: Callable[[Path], object], reason: str, metrics: Mapping[str, float] | None = None
    ) -> Checkpoint:
        """Let ``write`` fill an empty directory, and publish it as the checkpoint of ``step`` once it is on the disk.

        A kill leaves either the whole checkpoint or a directory that no scan looks at.
        """
        final = self.directory / f"step-{step:010d}"
        temporary = self.directory / f".step-{step:010d}.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        files = tuple(_describe(temporary, path) for path in sorted(temporary.rglob("*")) if path.is_file())
        made = Checkpoint(step, self._digest, reason, self._attempt, files, metrics or {}, final)
        write_json(temporary / MANIFEST, made.to_json())
        shutil.rmtree(final, ignore_errors=True)  # a torn one, or the same step saved again
        os.replace(temporary, final)
        _flush(self.directory)
        self._sweep(made)
        return made

    def newest(self, further: Path | None = None) -> Checkpoint | None:
        """The newest whole checkpoint, here or in a further place, or None if there has never been one.

        :param further: a checkpoint, or a directory of them, that the pipeline names.
        :raises ContractExit: 66 if checkpoints exist but none is whole, if the newest belongs to another configuration
            or another release of this library, or if the further place holds none; 74 if a directory cannot be listed.
        """
        places = [self._candidates(self.directory)]
        if further is not None:
            places.append([further] if (further / MANIFEST).is_file() else self._candidates(further))
            if not places[-1]:
                raise ContractExit(EXIT_RESUME_REFUSED, f"TRC_RESUME names {further}, which holds no checkpoint")
        whole = [found for place in places if (found := next(self._whole(place), None)) is not None]
        if whole:
            return self._accept(max(whole, key=lambda found: found.step))
        if any((path / MANIFEST).exists() for place in places for path in place):
            raise ContractExit(
                EXIT_RESUME_REFUSED,
                f"none of the checkpoints in {self.directory} is whole; starting from zero would throw the run away "
                "without a word. Remove them to start again",
            )
        return None

    def _whole(self, candidates: list[Path]) -> Iterator[Checkpoint]:
        for directory in candidates:
            try:
                yield Checkpoint.read(directory)
            except TornCheckpoint as torn:
                self._say(f"skipping checkpoint {directory.name}: {torn}")
            except UnknownVersion as unknown:
                # An older one would do, but the work since then would be lost without a word.
                problem = f"checkpoint {directory} is of another release: {unknown}. Use that release, or remove it"
                raise ContractExit(EXIT_RESUME_REFUSED, problem) from unknown

    def _accept(self, found: Checkpoint) -> Checkpoint:
        if found.config_digest != self._digest:
            raise ContractExit(
                EXIT_RESUME_REFUSED,
                f"checkpoint {found.directory} was made with another configuration (digest {found.config_digest}, now "
                f"{self._digest}). Give the same arguments and data as before, or start in an empty directory",
            )
        return found

    def _candidates(self, directory: Path) -> list[Path]:
        try:
            return sorted((path for path in directory.iterdir() if path.name.startswith("step-")), reverse=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            # None would mean "no checkpoint" and silently restart the run: an unreachable store is not an empty one.
            raise ContractExit(EXIT_STORAGE, f"cannot list the checkpoints in {directory}: {error}") from error

    def _sweep(self, newest: Checkpoint) -> None:
        """Remove old checkpoints, their manifests first, and what earlier attempts left half-written.

        Directories of later steps are torn ones that were skipped: they do not count among those kept.
        """
        reached = [path for path in self._candidates(self.directory) if path.name <= newest.directory.name]
        for old in reached[self._keep :]:
            if _is_unknown(old):
                continue
            (old / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(old, ignore_errors=True)
        for abandoned in self.directory.glob(".step-*.tmp"):
            shutil.rmtree(abandoned, ignore_errors=True)


def _is_unknown(directory: Path) -> bool:
    """Tell whether a checkpoint has a manifest of another version; a torn one has none that can be read."""
    try:
        _check_version(json.loads((directory / MANIFEST).read_bytes()))
    except UnknownVersion:
        return True
    except (OSError, ValueError):
        return False
    return False


def _describe(directory: Path, path: Path) -> CheckpointFile:
    _flush(path)
    return CheckpointFile(path.relative_to(directory).as_posix(), path.stat().st_size, crc32c_of(path))


def _flush(path: Path) -> None:
    """Wait until a file or a directory is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
