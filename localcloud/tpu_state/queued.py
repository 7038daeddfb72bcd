"""The life of queued resources: waiting, provisioning, active, suspended, failed, deleted. Pure, like the nodes.

A preemption deletes the node and suspends the request; a suspended request never comes back by itself and holds its
quota until it is deleted, and so does a failed one (https://github.com/marin-community/marin/issues/87).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from google.cloud.tpu_v2.types import Node
from google.rpc import code_pb2

from localcloud.faults import Fault
from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.tpu_state import transitions
from localcloud.tpu_state.node_record import NodeRecord
from localcloud.tpu_state.nodes import NodeBook, Transition
from localcloud.tpu_state.queued_record import Initiator, QueuedRecord, State

_NODE_LOST = frozenset({Node.State.PREEMPTED, Node.State.TERMINATED, Node.State.DELETING})
_ENDED = frozenset({State.DELETING, State.FAILED})


class QueuedBook:
    """All queued resources of the project.

    Params of a ``queued.timeline`` fault, taken when the request is registered: ``wait`` (seconds in
    WAITING_FOR_RESOURCES, or ``"forever"``), ``accepted`` (true: wait in ACCEPTED, the state's older name), ``fail``
    (``code`` and ``message``: PROVISIONING, SUSPENDING, FAILED, the way real ones were seen to go).

    :param nodes: the nodes they make.
    :ivar records: by full name.
    """

    def __init__(self, nodes: NodeBook) -> None:
        self.nodes = nodes
        self.world = nodes.world
        self.records: dict[str, QueuedRecord] = {}
        nodes.listeners.append(self._on_node)

    def find(self, name: str) -> QueuedRecord:
        """Return a queued resource by full name.

        :raises CloudError: NOT_FOUND, INVALID_ARGUMENT or PERMISSION_DENIED.
        """
        full = self.world.locate(name, "queuedResources").full
        if full not in self.records:
            raise errors.not_found(full)
        return self.records[full]

    def move(self, record: QueuedRecord, state: int, initiator: int = Initiator.SERVICE) -> None:
        """Change a state by the rules."""
        transitions.check(transitions.QUEUED, record.name, record.state, state)
        record.state = state
        record.initiator = initiator

    def _if_still(self, record: QueuedRecord, state: int, action: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            if self.records.get(record.name) is record and record.state == state:
                action()

        return guarded

    def _later(self, seconds: float, record: QueuedRecord, action: Callable[[], None]) -> None:
        self.world.later(seconds, self._if_still(record, record.state, action))

    # -- coming up -----------------------------------------------------------------------------------------------

    def enqueue(self, record: QueuedRecord) -> None:
        """Register the request and let it wait for its turn, its earliest instant or for ever."""
        fault = self.world.faults.take("queued.timeline", queued=record.where.id, zone=record.where.zone)
        accepted = fault is not None and fault.params.get("accepted", False)
        self.move(record, State.ACCEPTED if accepted else State.WAITING_FOR_RESOURCES)
        now = self.world.now().timestamp()
        if (until := _valid_until(record, now)) is not None:
            self._later(until - now, record, partial(self._expire, record))
        wait = fault.params.get("wait", self.world.latencies.waiting) if fault else self.world.latencies.waiting
        if wait != "forever":
            delay = max(float(wait), _valid_after(record, now) - now)
            self._later(delay, record, partial(self._provision, record, fault))

    def _expire(self, record: QueuedRecord) -> None:
        text = f"Queued resource '{record.name}' did not become active within its validity"
        self._fail(record, CloudError(code_pb2.DEADLINE_EXCEEDED, errors.eid(text)))

    def _fail(self, record: QueuedRecord, error: CloudError) -> None:
        record.error = error
        self.move(record, State.FAILED)
        for node in record.nodes:
            self.nodes.vanish(node)

    def _provision(self, record: QueuedRecord, fault: Fault | None) -> None:
        self.move(record, State.PROVISIONING)
        scripted = fault.params.get("fail") if fault else None
        if scripted is not None:
            error = CloudError(int(scripted.get("code", 8)), str(scripted.get("message", "provisioning failed")))
            self._later(self.world.latencies.failing, record, partial(self._fail_late, record, error))
            return
        try:
            for node in record.nodes:
                self.nodes.enter(node)
        except CloudError as error:
            self._fail(record, error)
            return
        self._later(self.world.latencies.creating, record, partial(self._boot, record))

    def _fail_late(self, record: QueuedRecord, error: CloudError) -> None:
        self.move(record, State.SUSPENDING)
        self._later(self.world.latencies.suspending, record, partial(self._fail, record, error))

    def _boot(self, record: QueuedRecord) -> None:
        for node in record.nodes:
            self.nodes.boot(node, partial(self._not_booted, record))

    def _not_booted(self, record: QueuedRecord, node: NodeRecord, reason: str) -> None:
        if record.state == State.PROVISIONING:
            self._fail(record, CloudError(code_pb2.INTERNAL, errors.eid(reason)))

    # -- what happens to its nodes ---------------------------------------------------------------------------------

    def _on_node(self, transition: Transition) -> None:
        record = self.records.get(transition.record.queued)
        if record is None or transition.record not in record.nodes or record.state in _ENDED:
            return
        if transition.new == Node.State.READY:
            self._activate(record)
        elif transition.new in _NODE_LOST and record.state in {State.PROVISIONING, State.ACTIVE}:
            self._suspend(record, Initiator.USER if transition.by_user else Initiator.SERVICE)
        elif transition.new is None and record.state == State.SUSPENDING and not self.live_nodes(record):
            initiator = record.initiator
            suspended = partial(self.move, record, State.SUSPENDED, initiator)
            self._later(self.world.latencies.suspending, record, suspended)

    def _activate(self, record: QueuedRecord) -> None:
        if record.state == State.PROVISIONING and all(node.state == Node.State.READY for node in record.nodes):
            self.move(record, State.ACTIVE)

    def _suspend(self, record: QueuedRecord, initiator: int) -> None:
        self.move(record, State.SUSPENDING, initiator)
        for node in self.live_nodes(record):
            if node.state not in _NODE_LOST:
                # One slice lost ends the request, and the request owns its other slices.
                self.nodes.remove(node, by_user=initiator == Initiator.USER)

    def live_nodes(self, record: QueuedRecord) -> list[NodeRecord]:
        """Return the nodes of a request that still exist."""
        return [node for node in record.nodes if self.nodes.records.get(node.name) is node]

    # -- going down ----------------------------------------------------------------------------------------------

    def remove(self, record: QueuedRecord, done: Callable[[], None]) -> None:
        """Delete a request: its nodes go first."""
        self.move(record, State.DELETING, Initiator.USER)
        waiting = {node.name for node in self.live_nodes(record)}

        def node_gone(name: str) -> None:
            waiting.discard(name)
            if not waiting:
                self._later(self.world.latencies.deleting, record, partial(self._gone, record, done))

        for node in self.live_nodes(record):
            self.nodes.remove(node, by_user=True, done=partial(node_gone, node.name))
        if not waiting:
            node_gone("")

    def _gone(self, record: QueuedRecord, done: Callable[[], None]) -> None:
        del self.records[record.name]
        done()


def _valid_until(record: QueuedRecord, now: float) -> float | None:
    return _instant(record, now, "valid_until", "end_time")


def _valid_after(record: QueuedRecord, now: float) -> float:
    return _instant(record, now, "valid_after", "start_time") or now


def _instant(record: QueuedRecord, now: float, policy: str, bound: str) -> float | None:
    """Return one end of the queueing policy as seconds since the epoch, or ``None`` if it is open."""
    asked: Any = type(record.template).pb(record.template).queueing_policy
    chosen = asked.WhichOneof("start_timing_constraints")
    if chosen == f"{policy}_duration":
        return now + float(getattr(asked, chosen).ToTimedelta().total_seconds())
    if chosen == f"{policy}_time":
        return float(getattr(asked, chosen).ToNanoseconds()) / 1e9
    if chosen == "valid_interval":
        return float(getattr(asked.valid_interval, bound).ToNanoseconds()) / 1e9
    return None
