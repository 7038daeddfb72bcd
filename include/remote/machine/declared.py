# SPDX-License-Identifier: Apache-2.0
"""Outputs that a run has declared (``outputs`` of the form): which files they are, and which are missing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Iterator

import protocol

from machine.run_dir import RunDir

_TOKEN = re.compile(r"\*\*/?|\*|\?|[^*?]+")
_MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Declared:
    """The patterns of one job.

    :param patterns: relative paths with ``*``, ``**`` and ``?``; a folder stands for all that is in it.
    """

    def __init__(self, patterns: list[str]) -> None:
        self._expressions = {pattern: re.compile(_expression(pattern)) for pattern in patterns}

    @classmethod
    def of(cls, job: dict[str, Any]) -> Declared:
        """Return what a job declares."""
        return cls(list(job.get("artifacts", [])))

    def names(self, path: str) -> bool:
        """Return whether a pattern names a file.

        :param path: of the file, relative to the directory in which it was declared.
        """
        return any(expression.fullmatch(path) for expression in self._expressions.values())

    def missing(self, run: RunDir, job: dict[str, Any]) -> list[str]:
        """Return the patterns that name no file, in the output directory or, new or changed, in the working directory.

        :param run: the attempt, which has ended.
        :param job: names its working directory.
        """
        waiting = dict(self._expressions)
        for path in _written(run, job) if waiting else ():
            waiting = {pattern: one for pattern, one in waiting.items() if not one.fullmatch(path)}
            if not waiting:
                break
        return list(waiting)


def started_ns(run: RunDir) -> int | None:
    """Return when the attempt was started, in ns: what changed later was not shipped. None before that."""
    try:
        return (run.path / protocol.JOB_FILE).stat().st_ctime_ns
    except FileNotFoundError:
        return None


def _written(run: RunDir, job: dict[str, Any]) -> Iterator[str]:
    yield from _files(run.output, 0)
    yield from _files(run.bundle / job.get("working_dir", ""), started_ns(run) or 0)


def _files(root: Path, since_ns: int) -> Iterator[str]:
    for directory, _, names in os.walk(str(root)):
        for path in (os.path.join(directory, name) for name in names):
            try:
                if os.lstat(path).st_ctime_ns > since_ns and os.path.isfile(path):
                    yield os.path.relpath(path, str(root))
            except OSError:
                continue  # it is gone, so it is no output


def _expression(pattern: str) -> str:
    """Return a pattern as a regular expression; of a folder, every file below it."""
    tokens = _TOKEN.findall(pattern.rstrip("/"))
    return "".join(_MEANINGS.get(token) or re.escape(token) for token in tokens) + "(?:/.*)?"
