# SPDX-License-Identifier: Apache-2.0
"""Which nodes exist, and every change of their states. Pure: time, randomness and VMs are inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from google.cloud.tpu_v2.types import Node

from localcloud.rules import errors
from localcloud.tpu_state import transitions
from localcloud.tpu_state.backend import Backend
from localcloud.tpu_state.nodes.record import NodeRecord

State = Node.State


@dataclass(frozen=True)
class Transition:
    """One change of a node's state.

    :param record: the node, already changed.
    :param old: the state before; ``None`` for a new node.
    :param new: the state now; ``None`` when the node is gone.
    :param by_user: whether the user asked for it; a preemption is the service's doing.
    :param at: when.
    :param seconds: the same instant on the clock's monotonic scale; durations are taken from here.
    """

    record: NodeRecord
    old: int | None
    new: int | None
    by_user: bool
    at: datetime
    seconds: float


class NodeRegistry:
    """All nodes of the project, by full name.

    :param backend: settings, clock, randomness, faults and VMs.
    :ivar listeners: called on every transition, in order.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.records: dict[str, NodeRecord] = {}
        self.listeners: list[Callable[[Transition], None]] = []

    def find(self, name: str) -> NodeRecord:
        """Return a node by full name.

        :raises CloudError: NOT_FOUND, INVALID_ARGUMENT or PERMISSION_DENIED.
        """
        full = self.backend.locate(name, "nodes").full
        if full not in self.records:
            raise errors.not_found(full)
        return self.records[full]

    def holds(self, record: NodeRecord) -> bool:
        """Return whether a node still exists; another node of the same name is not it."""
        return self.records.get(record.name) is record

    def add(self, record: NodeRecord) -> None:
        """Add a new node, in CREATING.

        :raises CloudError: ALREADY_EXISTS; also while a node of that name is preempted or still DELETING.
        """
        if record.name in self.records:
            raise errors.already_exists(record.name)
        self.records[record.name] = record
        self._announce(record, None, record.state, by_user=True)

    def drop(self, record: NodeRecord, *, by_user: bool) -> None:
        """Remove a node and its disks, if it still exists: its name is free again."""
        if self.holds(record):
            del self.records[record.name]
            self.backend.machines.discard(record.name)
            self._announce(record, record.state, None, by_user=by_user)

    def move(self, record: NodeRecord, state: int, *, by_user: bool = False) -> None:
        """Change a node's state by the rules.

        :raises IllegalTransition: if the local cloud itself is wrong.
        """
        transitions.check(transitions.NODE, record.name, record.state, state)
        self.force(record, state, by_user=by_user)

    def force(self, record: NodeRecord, state: int, *, by_user: bool = False) -> None:
        """Change a node's state against the rules, for faults: the number may be one no client knows."""
        old, record.state = record.state, state
        record.health = Node.Health.HEALTHY if state == State.READY else 0
        self._announce(record, old, state, by_user=by_user)

    def _announce(self, record: NodeRecord, old: int | None, new: int | None, *, by_user: bool) -> None:
        clock = self.backend.timeline.clock
        transition = Transition(record, old, new, by_user, clock.now(), clock.monotonic())
        for listener in self.listeners:
            listener(transition)
