# SPDX-License-Identifier: Apache-2.0
"""Faults of a node that is READY: scripted at ``node.timeline``, or at random for the spot tier."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from google.cloud.tpu_v2.types import Node

from localcloud.tpu_state.nodes.boot import NodeBoot
from localcloud.tpu_state.nodes.record import NodeRecord
from localcloud.tpu_state.nodes.registry import NodeRegistry, Transition
from localcloud.tpu_state.nodes.shutdown import NodeShutdown
from localcloud.tpu_state.transitions import LOST

_MAINTENANCE_SECONDS = 1.0
_ENDED = LOST | {Node.State.DELETING, Node.State.STOPPED}


class NodeFaults:
    """Plans the faults of every node when it becomes READY for the first time.

    Keys of the params of a ``node.timeline`` fault, seconds of the cloud's clock after READY:
    ``preempt_after`` (with ``notice``), ``terminate_after``, ``maintenance_after`` (with ``seconds``: the VMs reboot),
    ``health_after`` and ``health`` (any number), ``hidden`` (seconds for which the node shows no addresses, or
    ``"forever"``), ``states``: a list of ``[seconds, state]`` (any number, also one that no client
    knows). ``preempt_at_step`` and ``maintenance_at_step`` wait for a step that the training reports in
    ``progress.json``.

    :param nodes: the nodes to watch.
    :param boot: restarts their VMs after maintenance.
    :param shutdown: takes them away.
    """

    def __init__(self, nodes: NodeRegistry, boot: NodeBoot, shutdown: NodeShutdown) -> None:
        self._nodes = nodes
        self._boot = boot
        self._shutdown = shutdown
        self._seen: set[int] = set()
        nodes.listeners.append(self._on_transition)

    def _on_transition(self, transition: Transition) -> None:
        record = transition.record
        if transition.new != Node.State.READY or record.uid in self._seen:
            return
        self._seen.add(record.uid)
        self._plan_natural_end(record)
        faults = self._nodes.backend.faults
        for fault in faults.take_all("node.timeline", node=record.where.id, zone=record.where.zone):
            self._plan(record, fault.params)

    def _plan_natural_end(self, record: NodeRecord) -> None:
        backend = self._nodes.backend
        mean = backend.settings.spot_mean_life
        if record.tier != "on-demand" and mean > 0:
            self._after(backend.rng.expovariate(1.0 / mean), record, self._preempt)
        if record.tier == "preemptible":
            self._after(backend.latencies.preemptible_life, record, self._shutdown.terminate)

    def _plan(self, record: NodeRecord, params: Mapping[str, Any]) -> None:
        notice = params.get("notice")
        if "preempt_after" in params:
            self._after(params["preempt_after"], record, partial(self._preempt, notice=notice))
        if "preempt_at_step" in params:
            self._at_step(params["preempt_at_step"], record, partial(self._preempt, notice=notice))
        if "terminate_after" in params:
            self._after(params["terminate_after"], record, self._shutdown.terminate)
        maintain = partial(self._maintain, seconds=float(params.get("seconds", _MAINTENANCE_SECONDS)))
        if "maintenance_after" in params:
            self._after(params["maintenance_after"], record, maintain)
        if "maintenance_at_step" in params:
            self._at_step(params["maintenance_at_step"], record, maintain)
        if "health_after" in params:
            self._after(params["health_after"], record, partial(_set_health, health=int(params["health"])))
        if "hidden" in params:
            self._hide(params["hidden"], record)
        for seconds, state in params.get("states", ()):
            self._after(seconds, record, partial(self._nodes.force, state=int(state)))

    def _hide(self, seconds: Any, record: NodeRecord) -> None:
        record.hides_addresses = True
        if seconds != "forever":
            self._after(seconds, record, _show_addresses)

    def _after(self, seconds: float, record: NodeRecord, action: Any) -> None:
        self._nodes.backend.later(float(seconds), partial(self._if_alive, record, action))

    def _at_step(self, step: Any, record: NodeRecord, action: Any) -> None:
        self._nodes.backend.machines.when_step(record.name, int(step), partial(self._if_alive, record, action))

    def _if_alive(self, record: NodeRecord, action: Any) -> None:
        if self._nodes.holds(record) and record.state not in _ENDED:
            action(record)

    def _preempt(self, record: NodeRecord, notice: float | None = None) -> None:
        self._shutdown.preempt(record, notice)

    def _maintain(self, record: NodeRecord, seconds: float) -> None:
        """Reboot the VMs: every process ends, addresses and host keys may change, the node stays READY."""
        record.health = Node.Health.UNHEALTHY_MAINTENANCE
        record.machines = ()
        backend = self._nodes.backend
        reboot = partial(self._boot.start, record)
        backend.machines.kill(record.name, lambda: backend.later(seconds, reboot))


def _set_health(record: NodeRecord, health: int) -> None:
    record.health = health


def _show_addresses(record: NodeRecord) -> None:
    record.hides_addresses = False
