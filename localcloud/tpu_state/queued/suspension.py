# SPDX-License-Identifier: Apache-2.0
"""How a queued resource loses its nodes: suspended when one is lost, or deleted with them.

A preemption deletes the node and suspends the request; a suspended request never comes back by itself and holds its
quota until it is deleted, and so does a failed one (https://github.com/marin-community/marin/issues/87).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from google.cloud.tpu_v2.types import Node

from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.registry import NodeRegistry, Transition
from localcloud.tpu_state.nodes.shutdown import NodeShutdown
from localcloud.tpu_state.queued.record import Initiator, QueuedRecord, State
from localcloud.tpu_state.queued.registry import QueuedRegistry
from localcloud.tpu_state.transitions import LOST

_NODE_LOST = LOST | {Node.State.DELETING}


class QueuedSuspension:
    """Suspends requests whose nodes are lost, and deletes requests.

    :param registry: the requests.
    :param nodes: their nodes.
    :param shutdown: deletes these.
    """

    def __init__(self, registry: QueuedRegistry, nodes: NodeRegistry, shutdown: NodeShutdown) -> None:
        self._registry = registry
        self._nodes = nodes
        self._shutdown = shutdown
        self._latencies = registry.backend.latencies
        nodes.listeners.append(self._on_node)

    def live_nodes(self, record: QueuedRecord) -> list[NodeRecord]:
        """Return the nodes of a request that still exist."""
        return [node for node in record.nodes if self._nodes.holds(node)]

    def _on_node(self, transition: Transition) -> None:
        record = self._registry.records.get(transition.record.queued)
        if record is None or transition.record not in record.nodes:
            return
        if transition.new in _NODE_LOST and record.state in {State.PROVISIONING, State.ACTIVE}:
            self._suspend(record, Initiator.USER if transition.by_user else Initiator.SERVICE)
        elif transition.new is None and record.state == State.SUSPENDING and not self.live_nodes(record):
            suspended = partial(self._registry.move, record, State.SUSPENDED, record.initiator)
            self._registry.later(self._latencies.suspending, record, suspended)

    def _suspend(self, record: QueuedRecord, initiator: int) -> None:
        self._registry.move(record, State.SUSPENDING, initiator)
        for node in self.live_nodes(record):
            if node.state not in _NODE_LOST:
                # One slice lost ends the request, and the request owns its other slices.
                self._shutdown.remove(node, by_user=initiator == Initiator.USER)

    def delete(self, record: QueuedRecord, done: Callable[[], None]) -> None:
        """Delete a request: its nodes go first."""
        self._registry.move(record, State.DELETING, Initiator.USER)
        waiting = {node.name for node in self.live_nodes(record)}

        def node_gone(name: str) -> None:
            waiting.discard(name)
            if not waiting:
                self._registry.later(self._latencies.deleting, record, gone)

        def gone() -> None:
            del self._registry.records[record.name]
            done()

        for node in self.live_nodes(record):
            self._shutdown.remove(node, by_user=True, done=partial(node_gone, node.name))
        if not waiting:
            node_gone("")
