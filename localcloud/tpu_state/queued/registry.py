# SPDX-License-Identifier: Apache-2.0
"""Which queued resources exist, and every change of their states."""

from __future__ import annotations

from collections.abc import Callable

from localcloud.rules import errors
from localcloud.tpu_state import transitions
from localcloud.tpu_state.backend import Backend
from localcloud.tpu_state.queued.record import Initiator, QueuedRecord


class QueuedRegistry:
    """All queued resources of the project.

    :param backend: settings, clock, randomness, faults and VMs.
    :ivar records: by full name.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.records: dict[str, QueuedRecord] = {}

    def find(self, name: str) -> QueuedRecord:
        """Return a queued resource by full name.

        :raises CloudError: NOT_FOUND, INVALID_ARGUMENT or PERMISSION_DENIED.
        """
        full = self.backend.locate(name, "queuedResources").full
        if full not in self.records:
            raise errors.not_found(full)
        return self.records[full]

    def holds(self, record: QueuedRecord) -> bool:
        """Return whether a request still exists; another of the same name is not it."""
        return self.records.get(record.name) is record

    def move(self, record: QueuedRecord, state: int, initiator: int = Initiator.SERVICE) -> None:
        """Change a state by the rules.

        :raises IllegalTransition: if the local cloud itself is wrong.
        """
        transitions.check(transitions.QUEUED, record.name, record.state, state)
        record.state = state
        record.initiator = initiator

    def later(self, seconds: float, record: QueuedRecord, action: Callable[[], None]) -> None:
        """Run an action in ``seconds``, unless the request has left its present state by then."""
        state = record.state

        def guarded() -> None:
            if self.holds(record) and record.state == state:
                action()

        self.backend.later(seconds, guarded)
