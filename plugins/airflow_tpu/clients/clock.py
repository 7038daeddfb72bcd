# SPDX-License-Identifier: Apache-2.0
"""The clock of the hooks: time is an input, so that a lease's week can pass in a test."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True)
class Clock:
    """What the hooks need of time; the machine's own unless told otherwise. Coroutines sleep by their event loop.

    :param now: this moment, as an aware instant.
    :param monotonic: seconds since an arbitrary start; never runs backwards.
    :param sleep: wait so many seconds, in code that is not asynchronous.
    """

    now: Callable[[], dt.datetime] = _utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


WALL = Clock()
"""The machine's clock."""
