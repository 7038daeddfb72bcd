# SPDX-License-Identifier: Apache-2.0
"""How a queued resource gets its nodes: it waits, is provisioned, becomes ACTIVE, or fails."""

from __future__ import annotations

from functools import partial

from google.cloud.tpu_v2.types import Node
from google.rpc import code_pb2

from localcloud.faults import Fault
from localcloud.rules import errors
from localcloud.rules.errors import CloudError
from localcloud.tpu_state.nodes.boot import NodeBoot
from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.registry import NodeRegistry, Transition
from localcloud.tpu_state.nodes.shutdown import NodeShutdown
from localcloud.tpu_state.queued.record import QueuedRecord, State
from localcloud.tpu_state.queued.registry import QueuedRegistry
from localcloud.tpu_state.queued.validity import valid_after, valid_until


class QueuedProvisioning:
    """Brings requests from CREATING to ACTIVE.

    Params of a ``queued.timeline`` fault, taken when the request is registered: ``wait`` (seconds in
    WAITING_FOR_RESOURCES, or ``"forever"``), ``accepted`` (true: wait in ACCEPTED, the state's older name), ``fail``
    (``code`` and ``message``: PROVISIONING, SUSPENDING, FAILED, the way real ones were seen to go), ``state`` (a number
    that the API shows from then on, also one that no client knows; the request stays where it is).

    :param registry: the requests.
    :param nodes: the nodes they make.
    :param boot: starts these.
    :param shutdown: removes these when the request fails.
    """

    def __init__(self, registry: QueuedRegistry, nodes: NodeRegistry, boot: NodeBoot, shutdown: NodeShutdown) -> None:
        self._registry = registry
        self._nodes = nodes
        self._node_boot = boot
        self._node_shutdown = shutdown
        self._backend = registry.backend
        nodes.listeners.append(self._on_node)

    def enqueue(self, record: QueuedRecord) -> None:
        """Register the request and let it wait for capacity, for its earliest instant, or forever."""
        fault = self._backend.faults.take("queued.timeline", queued=record.where.id, zone=record.where.zone)
        accepted = fault is not None and fault.params.get("accepted", False)
        self._registry.move(record, State.ACCEPTED if accepted else State.WAITING_FOR_RESOURCES)
        now = self._backend.now().timestamp()
        if (until := valid_until(record, now)) is not None:
            self._registry.later(until - now, record, partial(self._expire, record))
        usual = self._backend.latencies.waiting
        wait = fault.params.get("wait", usual) if fault else usual
        record.shown_state = int(fault.params["state"]) if fault and "state" in fault.params else None
        if wait != "forever":
            delay = max(float(wait), valid_after(record, now) - now)
            self._registry.later(delay, record, partial(self._provision, record, fault))

    def _expire(self, record: QueuedRecord) -> None:
        text = f"Queued resource '{record.name}' did not become active within its validity"
        self._fail(record, CloudError(code_pb2.DEADLINE_EXCEEDED, errors.eid(text)))

    def _fail(self, record: QueuedRecord, error: CloudError) -> None:
        record.error = error
        self._registry.move(record, State.FAILED)
        for node in record.nodes:
            self._node_shutdown.vanish(node)

    def _provision(self, record: QueuedRecord, fault: Fault | None) -> None:
        self._registry.move(record, State.PROVISIONING)
        refusal = self._refusal(record, fault)
        if refusal is not None:
            self._registry.later(self._backend.latencies.failing, record, partial(self._fail_late, record, refusal))
            return
        try:
            for node in record.nodes:
                self._nodes.add(node)
        except CloudError as error:
            self._fail(record, error)
            return
        self._registry.later(self._backend.latencies.creating, record, partial(self._boot, record))

    def _refusal(self, record: QueuedRecord, fault: Fault | None) -> CloudError | None:
        """Return why the nodes of a request cannot be made: by script, or by the rules of the project."""
        scripted = fault.params.get("fail") if fault else None
        if scripted is not None:
            return CloudError(int(scripted.get("code", 8)), str(scripted.get("message", "provisioning failed")))
        settings = self._backend.settings
        found = (settings.project.refusal(node.template, settings.project_number) for node in record.nodes)
        return next((error for error in found if error is not None), None)

    def _fail_late(self, record: QueuedRecord, error: CloudError) -> None:
        self._registry.move(record, State.SUSPENDING)
        self._registry.later(self._backend.latencies.suspending, record, partial(self._fail, record, error))

    def _boot(self, record: QueuedRecord) -> None:
        for node in record.nodes:
            self._node_boot.start(node, partial(self._not_booted, record))

    def _not_booted(self, record: QueuedRecord, node: NodeRecord, reason: str) -> None:
        if record.state == State.PROVISIONING:
            self._fail(record, CloudError(code_pb2.INTERNAL, errors.eid(reason)))

    def _on_node(self, transition: Transition) -> None:
        """Activate a request once all of its nodes are READY."""
        record = self._registry.records.get(transition.record.queued)
        if record is None or record.state != State.PROVISIONING or transition.record not in record.nodes:
            return
        if transition.new == Node.State.READY and all(node.state == Node.State.READY for node in record.nodes):
            self._registry.move(record, State.ACTIVE)
