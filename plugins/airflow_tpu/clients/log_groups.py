# SPDX-License-Identifier: Apache-2.0
"""Groups in a task log, which Airflow's log page folds.

Airflow 3.3 shows every group folded until a person opens it, counts groups like brackets over all processes of a try
(worker, triggerer, worker again), and writes nothing of its own that would close one. So a group holds what is looked
up when something went wrong. What a person watches is outside, and seen at once: the training's log, the lines of a
long wait, the result. No trigger keeps a group open while it waits: killed there, it would fold all that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Log(Protocol):
    """A logger of the standard library, or a task's own."""

    def info(self, event: str, /, *args: Any) -> Any:
        """Write one line."""


@contextmanager
def log_group(log: Log, name: str) -> Iterator[None]:
    """Write what the block logs into a group, closed however the block ends: by an error, a deferral, a time limit.

    :param log: where the lines of the block go.
    :param name: what the folded group is called; the imperative of what is done.
    """
    log.info("::group::%s", name)
    try:
        yield
    finally:
        log.info("::endgroup::")
