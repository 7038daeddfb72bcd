"""The life of nodes: created, usable, preempted, stopped, deleted. Pure: time, chance and VMs are inputs.

Sources of the rules: Google's pages on preemptible TPUs and on TPU VM states. A preempted node keeps its name and its
quota until somebody deletes it (https://github.com/skypilot-org/skypilot/pull/1483).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from google.cloud.tpu_v2.types import Node
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.tpu_state import transitions
from localcloud.tpu_state.backend import World
from localcloud.tpu_state.machines import Machine
from localcloud.tpu_state.node_record import NodeRecord
from localcloud.tpu_state.operations import OperationBook

State = Node.State
_RUNNING = frozenset({State.CREATING, State.READY, State.RESTARTING, State.REIMAGING, State.REPAIRING, State.STARTING})


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


class NodeBook:
    """All nodes of the project.

    :param world: settings, time, chance, faults and VMs.
    :param operations: where operations are settled.
    :ivar listeners: called on every transition, in order.
    """

    def __init__(self, world: World, operations: OperationBook) -> None:
        self.world = world
        self.operations = operations
        self.records: dict[str, NodeRecord] = {}
        self.listeners: list[Callable[[Transition], None]] = []

    def find(self, name: str) -> NodeRecord:
        """Return a node by full name.

        :raises CloudError: NOT_FOUND, INVALID_ARGUMENT or PERMISSION_DENIED.
        """
        full = self.world.locate(name, "nodes").full
        if full not in self.records:
            raise errors.not_found(full)
        return self.records[full]

    def enter(self, record: NodeRecord) -> None:
        """Take a new node in, in CREATING.

        :raises CloudError: ALREADY_EXISTS; also while a node of that name is preempted or still DELETING.
        """
        if record.name in self.records:
            raise errors.already_exists(record.name)
        self.records[record.name] = record
        self._tell(record, None, record.state, by_user=True)

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
        self._tell(record, old, state, by_user=by_user)

    def _tell(self, record: NodeRecord, old: int | None, new: int | None, *, by_user: bool) -> None:
        clock = self.world.timeline.clock
        transition = Transition(record, old, new, by_user, clock.now(), clock.monotonic())
        for listener in self.listeners:
            listener(transition)

    # -- coming up -----------------------------------------------------------------------------------------------

    def boot(self, record: NodeRecord, failed: Callable[[NodeRecord, str], None]) -> None:
        """Start the VMs of a node in CREATING, STARTING or RESTARTING; it is READY once they all answer."""
        if self.records.get(record.name) is not record or record.state not in _RUNNING:
            return
        record.boots += 1
        self.world.machines.boot(
            record.order(), partial(self._booted, record, record.boots), partial(self._not_booted, record, failed)
        )

    def _booted(self, record: NodeRecord, boot: int, machines: Sequence[Machine]) -> None:
        if record.boots != boot or record.state not in _RUNNING:
            return
        record.machines = tuple(machines)
        if record.state == State.READY:
            record.health = Node.Health.HEALTHY
        else:
            self.move(record, State.READY)
        if record.create is not None:
            self.operations.succeed(record.create, Node.pb(record.view()))
            record.create = None

    def _not_booted(self, record: NodeRecord, failed: Callable[[NodeRecord, str], None], reason: str) -> None:
        if record.state in _RUNNING:
            failed(record, reason)

    def abandon(self, record: NodeRecord, reason: str = "") -> None:
        """Remove a node that never came up and leave nothing of it; its create operation says code 13."""
        if record.create is not None:
            self.operations.fail(record.create, CloudError(code_pb2.INTERNAL, errors.eid(reason or "internal error")))
        record.create = None
        self.vanish(record)

    def vanish(self, record: NodeRecord) -> None:
        """Remove a node at once, VMs included."""
        if self.records.get(record.name) is not record:
            return
        record.boots += 1
        self.world.machines.kill(record.name, partial(self._gone, record, by_user=False))

    # -- going down ----------------------------------------------------------------------------------------------

    def preempt(self, record: NodeRecord, notice: float | None = None) -> None:
        """Take a node away, as Google does with spot capacity.

        :param notice: seconds between TERM to the user's processes and the end; the configured notice by default.
        :raises CloudError: FAILED_PRECONDITION if the node has no VMs to lose.
        """
        if record.state not in _RUNNING:
            raise errors.precondition(f"Node '{record.name}' is not running: {record.state}")
        seconds = self.world.settings.preemption_notice if notice is None else notice
        if seconds <= 0:
            self._cut(record, State.PREEMPTED)
            return
        self.world.machines.warn(record.name)
        self.world.later(seconds, partial(self._cut, record, State.PREEMPTED))

    def terminate(self, record: NodeRecord) -> None:
        """End a node that has reached the age limit of the preemptible tier."""
        self._cut(record, State.TERMINATED)

    def power_off(self, record: NodeRecord) -> None:
        """Let the VMs of a node go down because somebody on one of them has shut it down.

        What Google shows then is not documented. Here it is what the API has for it: STOPPED where a node can be
        stopped, else TERMINATED, with which a queued resource ends as by any loss. Name and quota stay.

        :raises CloudError: FAILED_PRECONDITION if the node is not READY.
        """
        if record.state != State.READY:
            raise errors.precondition(f"Node '{record.name}' is not running: {record.state}")
        if record.queued or record.kind.hosts > 1:
            self._cut(record, State.TERMINATED)
            return
        record.boots += 1
        record.machines = ()
        self.move(record, State.STOPPING)

        def stopped() -> None:
            if record.state == State.STOPPING:
                self.move(record, State.STOPPED)

        self.world.machines.kill(record.name, partial(self.world.later, self.world.latencies.changing, stopped))

    def _cut(self, record: NodeRecord, state: int) -> None:
        if self.records.get(record.name) is not record or record.state not in _RUNNING:
            return
        lost_in_creation = record.create
        record.boots += 1
        record.machines = ()
        record.create = None
        self.move(record, state)
        self.world.machines.kill(record.name, lambda: None)
        if lost_in_creation is not None:
            self.operations.fail(lost_in_creation, errors.no_capacity(record.where.zone))
        if record.queued:
            self.remove(record, by_user=False)

    def remove(self, record: NodeRecord, *, by_user: bool, done: Callable[[], None] | None = None) -> None:
        """Delete a node: DELETING, VMs killed, then gone. The name stays taken until then."""
        record.boots += 1
        record.machines = ()
        if record.create is not None:
            aborted = CloudError(code_pb2.ABORTED, errors.eid(f"Node '{record.name}' was deleted while it was created"))
            self.operations.fail(record.create, aborted)
            record.create = None
        if record.state != State.DELETING:
            self.move(record, State.DELETING, by_user=by_user)

        def gone() -> None:
            self.world.later(self.world.latencies.deleting, partial(self._gone, record, by_user=by_user, done=done))

        self.world.machines.kill(record.name, gone)

    def _gone(self, record: NodeRecord, *, by_user: bool, done: Callable[[], None] | None = None) -> None:
        if self.records.get(record.name) is record:
            del self.records[record.name]
            self.world.machines.discard(record.name)
            self._tell(record, record.state, None, by_user=by_user)
        if done is not None:
            done()
