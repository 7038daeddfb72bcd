# SPDX-License-Identifier: Apache-2.0
"""Read many small objects: several at once, in order, and saying how far it is when it takes long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from airflow_tpu.clients.clock import WALL, Clock

T = TypeVar("T")
log = logging.getLogger(__name__)

READERS = 8
"""Requests at once; the connection pool of Google's client holds ten."""
TELL_SECONDS = 5.0
"""How long a reader is kept waiting without a word."""


def read_many(read: Callable[[str], T], names: Sequence[str], clock: Clock = WALL) -> Iterator[T]:
    """What ``read`` gives for each name, in the order of the names.

    The first failure is raised in its turn, and nothing more is asked for after it.

    :param read: reads one; called from several threads.
    :param names: what to read.
    :param clock: decides when a word on the progress is due.
    """
    pool = ThreadPoolExecutor(min(READERS, max(1, len(names))), thread_name_prefix="read")
    try:
        due = clock.monotonic() + TELL_SECONDS
        for number, found in enumerate(pool.map(read, names), start=1):
            if clock.monotonic() >= due:
                log.info("read %d of %d objects", number, len(names))
                due = clock.monotonic() + TELL_SECONDS
            yield found
    finally:
        pool.shutdown(cancel_futures=True)
