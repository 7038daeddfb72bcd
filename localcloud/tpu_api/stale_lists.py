# SPDX-License-Identifier: Apache-2.0
"""Lists that are behind: what was just created is not in them yet, what was just deleted still is.

Google promises no list that is up to date at every moment. A resource that is read by its name is always shown here as
it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.cloud.tpu_v2.types import Node

from localcloud.tpu_state.nodes.registry import NodeRegistry, Transition
from localcloud.tpu_state.queued.registry import QueuedRegistry

Method = Callable[[Any], Any]


class StaleLists:
    """Lists that are behind, as ``tpu.list`` faults script it.

    Their ``event`` is ``create`` (the resource is missing) or ``delete`` (it is still shown as it was before), their
    param ``seconds`` of the cloud's clock since then, after which the list is right.

    :param nodes: the nodes, those of queued resources included.
    :param queued: the queued resources.
    """

    def __init__(self, nodes: NodeRegistry, queued: QueuedRegistry) -> None:
        self._backend = nodes.backend
        self._queued = queued
        self._missing: dict[str, float] = {}
        self._ghosts: dict[str, tuple[Any, float]] = {}
        nodes.listeners.append(self._on_node)

    def over(self, methods: Mapping[str, Method]) -> dict[str, Method]:
        """Return the methods of the API with lists that may be behind."""
        return {
            **methods,
            "Tpu/ListNodes": self._late(methods["Tpu/ListNodes"], "nodes"),
            "Tpu/ListQueuedResources": self._late(methods["Tpu/ListQueuedResources"], "queued_resources"),
            "Tpu/CreateQueuedResource": self._creating(methods["Tpu/CreateQueuedResource"]),
            "Tpu/DeleteQueuedResource": self._deleting(methods["Tpu/DeleteQueuedResource"]),
        }

    # -- what happens ----------------------------------------------------------------------------------------------

    def _on_node(self, transition: Transition) -> None:
        record, old = transition.record, transition.old
        if old is None:
            self._created(record.name)
        elif transition.new in (None, Node.State.DELETING) and old != Node.State.DELETING:
            before = record.view()
            Node.pb(before).state = old
            self._deleted(record.name, before)

    def _creating(self, create: Method) -> Method:
        def call(request: Any) -> Any:
            answer = create(request)
            self._created(self._backend.locate(request.parent).child("queuedResources", request.queued_resource_id))
            return answer

        return call

    def _deleting(self, delete: Method) -> Method:
        def call(request: Any) -> Any:
            record = self._queued.records.get(request.name)
            before = record.view() if record is not None and record.delete is None else None
            answer = delete(request)
            if before is not None:
                self._deleted(request.name, before)
            return answer

        return call

    def _created(self, name: str) -> None:
        self._ghosts.pop(name, None)
        if (until := self._strikes("create", name)) is not None:
            self._missing[name] = until

    def _deleted(self, name: str, before: Any) -> None:
        if (until := self._strikes("delete", name)) is not None:
            self._ghosts[name] = (before, until)

    def _strikes(self, event: str, name: str) -> float | None:
        fault = self._backend.faults.take("tpu.list", event=event, name=name)
        return None if fault is None else self._now() + float(fault.params.get("seconds", 10.0))

    # -- what is shown ---------------------------------------------------------------------------------------------

    def _late(self, method: Method, field: str) -> Method:
        def call(request: Any) -> Any:
            answer = method(request)
            shown = {item.name: item for item in getattr(answer, field) if not self._is_missing(item.name)}
            ghosts = self._ghosts_of(request.parent, field)
            kept = [ghosts.pop(name, item) for name, item in shown.items()]
            # What is gone altogether stands at the end, after the last page.
            setattr(answer, field, kept if answer.next_page_token else [*kept, *ghosts.values()])
            return answer

        return call

    def _is_missing(self, name: str) -> bool:
        return self._missing.get(name, 0.0) > self._now()

    def _ghosts_of(self, parent: str, field: str) -> dict[str, Any]:
        collection = {"nodes": "nodes", "queued_resources": "queuedResources"}[field]
        zone = self._backend.locate(parent, wildcard=True).zone
        found = {}
        for name, (before, until) in self._ghosts.items():
            _, _, _, its_zone, its_collection, _ = name.split("/")
            if until > self._now() and its_collection == collection and zone in ("-", its_zone):
                found[name] = before
        return found

    def _now(self) -> float:
        return self._backend.timeline.clock.monotonic()
