# SPDX-License-Identifier: Apache-2.0
"""What a command leaves beside its script, as most scripts do that were not written for this contract."""

from __future__ import annotations

import os
from typing import Iterator

import protocol

from machine import output_tree
from machine.declared import Declared, started_ns
from machine.output_tree import OutputFile
from machine.run_dir import RunDir

LIMIT = 2 * 1024**3  # bytes; a data set that a script has unpacked there is no result
_CACHES = frozenset({"__pycache__", "node_modules", "venv", "build"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta/history")
_BEYOND = "is beyond the %d GiB that are saved from the working directory; write it to TRC_OUTPUT_DIR" % (LIMIT >> 30)


def left_files(run: RunDir, prefix: str) -> list[OutputFile]:
    """Return the files that have come or changed since the attempt was started, those beyond the limit with a reason.

    What the run has declared is saved in any case, then the newest first: the model is written after the data were
    unpacked.

    :param run: the attempt.
    :param prefix: of the object names, because their length is limited as a whole.
    """
    started = started_ns(run)
    if started is None:
        return []
    job = run.read(protocol.JOB_FILE) or {}
    declared, folder = Declared.of(job), job.get("working_dir", "")
    new = output_tree.scan(run.bundle, prefix, since_ns=started)  # each minute, so what was shipped is not read again
    environments = tuple(_environments(new))
    kept: list[OutputFile] = []
    found: list[OutputFile] = []
    for entry in (entry for entry in new if _is_file(entry) and _changed(entry) > started):
        if declared.names(os.path.relpath(entry.name, folder or ".")):
            kept.append(entry)
        elif _is_result(entry) and not entry.name.startswith(environments):
            found.append(entry)
    found.sort(key=_changed, reverse=True)
    size = 0
    for entry in found:
        size += entry.path.lstat().st_size
        kept.append(entry if size <= LIMIT else entry._replace(reason=_BEYOND))
    return sorted(kept, key=lambda entry: entry.name)


def _environments(entries: list[OutputFile]) -> Iterator[str]:
    """Return the folders of environments that the command has made, whatever their names: packages, no results."""
    for entry in entries:
        for mark in _ENVIRONMENT_MARKS:
            if entry.name.endswith("/" + mark):
                yield entry.name[: -len(mark)]


def _is_result(entry: OutputFile) -> bool:
    parts = entry.name.split("/")
    return not any(part.startswith(".") or part in _CACHES or part.endswith(".egg-info") for part in parts)


def _is_file(entry: OutputFile) -> bool:
    return not entry.target and os.path.isfile(str(entry.path))


def _changed(entry: OutputFile) -> int:
    """Return when the file was last changed, in ns: unpacking an archive sets other times back, not this one."""
    return os.lstat(str(entry.path)).st_ctime_ns
