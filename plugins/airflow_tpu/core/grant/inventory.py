# SPDX-License-Identifier: Apache-2.0
"""TPUs that exist in the project now, of every owner, as the grant counts them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_tpu.core.tpu.labels import airflow_of, run_of
from airflow_tpu.core.tpu.resource_name import ResourceName, zone_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView, Tier, TPUView

LATEST = datetime.max.replace(tzinfo=UTC)
"""Instant of a request whose time is unknown: then it counts as the youngest."""

_DEAD = frozenset({Phase.LOST, Phase.FAILED})


@dataclass(frozen=True)
class InventoryItem:
    """A node, a queued resource without one, or what a run has reserved and not yet created.

    :param name: of the resource, None for a reservation.
    :param owner: digest of the run that owns it, None if this package did not make it.
    :param alive: False for preempted, failed and suspended ones: dead, but counted until they are deleted.
    :param node: id of the one that is meant where a queued resource waits for several nodes.
    :param since: when it was requested, by the API; the latest of all instants if the API does not say.
    :param reserved_by: name of the run that a reservation is of.
    :param airflow: identity of the Airflow whose it is, None if it is of none or says nothing.
    :param waits: a run waits for it, and it takes no quota yet.
    :param holder: that run as Airflow shows it: DAG, run id, session, index; empty if unknown.
    """

    name: ResourceName | None
    accelerator_type: str
    tier: Tier
    zone: str
    owner: str | None
    alive: bool = True
    node: str = ""
    since: datetime = LATEST
    reserved_by: str = ""
    airflow: str | None = None
    waits: bool = False
    holder: str = ""

    @property
    def id(self) -> str:
        """Short name, with the node where a queued resource waits for several."""
        short = self.name.id if self.name else f"reservation of {self.reserved_by}"
        if self.waits:
            return self.reserved_by
        return f"{short}/{self.node}" if self.node else short

    def __str__(self) -> str:
        state = "" if self.alive else ", dead: delete it to free its chips"
        of = f" of {self.holder}" if self.holder else ""
        return f"{self.id} ({self.accelerator_type or 'unknown type'}{state}){of}"


@dataclass(frozen=True)
class Inventory:
    """Everything that takes quota in the project.

    :param items: nodes and queued resources, each TPU once.
    :param unreachable: zones that did not answer, as names or as resource names.
    """

    items: tuple[InventoryItem, ...] = ()
    unreachable: tuple[str, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[TPUView], queued: Iterable[QueuedView], unreachable: Iterable[str] = ()) -> Inventory:
        """Count what two list calls found; a queued resource whose node is there is that node, counted once.

        A multislice counts as all of its nodes, also while only some of them are there.
        """
        nodes, queued = tuple(nodes), tuple(queued)
        asked = {request.name: request.created_at for request in queued}
        items = [_of_node(node, asked) for node in nodes]
        for request in queued:
            items += [_of_queued(request, node_id) for node_id in _missing(request, nodes)]
        return cls(tuple(items), tuple(unreachable))

    def is_unreachable(self, zone: str) -> bool:
        """Whether nothing is known of a zone."""
        return zone in map(zone_of, self.unreachable)

    def of_others(self, owner: str) -> Inventory:
        """Without what a run itself holds: it is adopted or deleted, never doubled."""
        return replace(self, items=tuple(item for item in self.items if item.owner != owner))

    def without_runs_of(self, airflow: str, but: Collection[str] = ()) -> Inventory:
        """What stays when the runs of an Airflow have ended.

        :param airflow: its identity, empty for none.
        :param but: digests of runs that stay.
        """
        ends = (item.airflow == airflow and item.owner is not None and item.owner not in but for item in self.items)
        stays = (item for item, gone in zip(self.items, ends, strict=True) if not (airflow and gone))
        return replace(self, items=tuple(stays))

    def also(self, items: Iterable[InventoryItem]) -> Inventory:
        """With more of them."""
        return replace(self, items=(*self.items, *items))

    def older_than(self, owner: str) -> Inventory:
        """Only what was requested before the newest TPU of a run; nothing if that is not here."""
        newest = max(((item.since, str(item.name)) for item in self.items if item.owner == owner), default=None)
        older = (item for item in self.items if newest is not None and (item.since, str(item.name)) < newest)
        return replace(self, items=tuple(older))


def _of_node(node: TPUView, asked: Mapping[ResourceName, datetime | None]) -> InventoryItem:
    """One node; one that a queued resource has made was requested when that was."""
    made_by = asked.get(node.queued_resource) if node.queued_resource is not None else None
    return InventoryItem(
        node.name,
        node.accelerator_type,
        node.tier,
        node.zone,
        run_of(node.labels),
        alive=node.phase not in _DEAD,
        since=made_by or node.created_at or LATEST,
        airflow=airflow_of(node.labels),
    )


def _of_queued(request: QueuedView, node_id: str) -> InventoryItem:
    alive, one_of_several = request.phase not in _DEAD, node_id if len(request.node_ids) > 1 else ""
    return InventoryItem(
        request.name,
        request.accelerator_type,
        request.tier,
        request.zone,
        run_of(request.labels),
        alive=alive,
        node=one_of_several,
        since=request.created_at or LATEST,
        airflow=airflow_of(request.labels),
    )


def _missing(request: QueuedView, nodes: Iterable[TPUView]) -> list[str]:
    """Return the ids of the nodes that a queued resource asks for and no list shows; its own if it names none."""
    there = {node.node_id for node in nodes if node.zone == request.zone}
    linked = sum(node.queued_resource == request.name and node.node_id not in request.node_ids for node in nodes)
    missing = [node_id for node_id in request.node_ids or (request.queued_id,) if node_id not in there]
    return missing[linked:]
