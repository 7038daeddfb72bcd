# SPDX-License-Identifier: Apache-2.0
"""The step of a training, read from the ``progress.json`` that it writes on its VM: for preemption at a step."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from localcloud.clock import Clock

_POLL = 0.1
_FILE = "progress.json"


async def wait_for_step(directory: Path, step: int, clock: Clock, reached: Callable[[], None]) -> None:
    """Call ``reached`` as soon as a ``progress.json`` below ``directory`` shows ``step`` or more.

    :param directory: the directories of all workers of a node.
    """
    while await asyncio.to_thread(latest_step, directory) < step:
        await clock.sleep(_POLL)
    reached()


def latest_step(directory: Path) -> int:
    """Return the highest step that any ``progress.json`` below a directory shows, or -1."""
    return max(map(_step, paths_named(_FILE, directory)), default=-1)


def paths_named(name: str, directory: Path) -> Iterator[Path]:
    """Return the paths of all files of a name below a directory, whatever comes and goes there meanwhile.

    ``Path.rglob`` of Python 3.11 and 3.12 fails when a directory is removed under it
    (https://github.com/python/cpython/pull/104141); ``os.walk`` passes over it.
    """
    return (Path(folder, name) for folder, _, names in os.walk(directory) if name in names)


def _step(path: Path) -> int:
    """Return the step of one file, -1 if it has none: it may be replaced or half written at this very moment."""
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
