"""Kills processes by the traces they leave, where no kernel object holds them together."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection, Iterable, Iterator

from localcloud.vm.processes import proctable

_ROUNDS = 300
_QUIET = 3
"""Rounds in a row that must find nothing: a process that is just being replaced may be missed once."""

_PAUSE = 0.01


class Traces:
    """What the processes of one worker can be known by, beside their descent.

    :param directory: the worker's directory: they work there, have a file of it open, or name it.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._since = proctable.ticks()  # spares the shell of a person who looks around there

    def rows(self, roots: Iterable[int] = ()) -> Iterator[proctable.Process]:
        """Yield the trees below ``roots``, and what else leaves traces."""
        for root in list(roots):
            yield from proctable.tree(root)
        yield from proctable.touching(self._directory, self._since)

    async def sweep(self, roots: Collection[int] = ()) -> list[int]:
        """Stop and kill those processes until none is found; return what could not be killed."""
        quiet = 0
        for _ in range(_ROUNDS):
            found = send(self.rows(roots), signal.SIGSTOP)
            if found:
                send(self.rows(roots), signal.SIGKILL)
            quiet = 0 if found else quiet + 1
            if quiet == _QUIET:
                return []
            await asyncio.sleep(_PAUSE)
        return sorted({row.pid for row in self.rows(roots)})


async def settled(rows: Iterable[proctable.Process]) -> list[int]:
    """Wait until the processes, already killed, have ended; return those that have not within a bound."""
    left = proctable.alive(rows)
    for _ in range(_ROUNDS):
        if not left:
            break
        await asyncio.sleep(_PAUSE)
        left = proctable.alive(left)
    return [row.pid for row in left]


def send(rows: Iterable[proctable.Process], number: signal.Signals) -> list[proctable.Process]:
    """Send a signal to each process as it comes, unless it is gone; return the rows."""
    reached = []
    for row in rows:
        try:
            os.kill(row.pid, number)
        except ProcessLookupError:
            continue
        reached.append(row)
    return reached
