# SPDX-License-Identifier: Apache-2.0
"""The calls of the TPU API in the order of their arrival, and how often each method was called."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

_KEPT = 200_000


@dataclass(frozen=True)
class LoggedCall:
    """One call of the API, as the caller sees it.

    :param method: ``Service/Method``.
    :param resource: name or parent in the request.
    :param at: when it arrived, ISO 8601.
    :param code: status code of the answer; -1 if none was ever given.
    :param fault: id of the fault that struck, or "".
    """

    method: str
    resource: str
    at: str
    code: int
    fault: str = ""


class CallLog:
    """The latest calls, and counts of all calls."""

    def __init__(self) -> None:
        self.latest: deque[LoggedCall] = deque(maxlen=_KEPT)
        self.counts: Counter[str] = Counter()

    def add(self, call: LoggedCall) -> None:
        """Log a call."""
        self.latest.append(call)
        self.counts[call.method] += 1
