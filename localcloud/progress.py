"""How far a training is, read from the ``progress.json`` that it writes on its VM: for preemption at a step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from localcloud.clock import Clock

_POLL = 0.1


async def wait_for_step(directory: Path, step: int, clock: Clock, reached: Callable[[], None]) -> None:
    """Call ``reached`` as soon as a ``progress.json`` below ``directory`` shows ``step`` or more.

    :param directory: the directories of all workers of a node.
    """
    while await asyncio.to_thread(latest_step, directory) < step:
        await clock.sleep(_POLL)
    reached()


def latest_step(directory: Path) -> int:
    """Return the highest step that any ``progress.json`` below a directory shows, or -1."""
    return max((_step(path) for path in directory.rglob("progress.json")), default=-1)


def _step(path: Path) -> int:
    """Return the step of one file, -1 if it has none: it may be replaced or half written at this very moment."""
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
