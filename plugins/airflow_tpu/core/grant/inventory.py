"""TPUs that exist in the project now, of every owner, as the grant counts them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from airflow_tpu.core.tpu.labels import run_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView, Tier, TPUView

_DEAD = frozenset({Phase.LOST, Phase.FAILED})


@dataclass(frozen=True)
class InventoryItem:
    """A node, or a queued resource without one.

    :param name: full resource name.
    :param owner: digest of the run that owns it, None if this package did not make it.
    :param alive: False for preempted, failed and suspended ones: dead, but counted until they are deleted.
    """

    name: str
    accelerator_type: str
    tier: Tier
    zone: str
    owner: str | None
    alive: bool = True

    def __str__(self) -> str:
        state = "" if self.alive else ", dead: delete it to free its chips"
        return f"{self.name.rpartition('/')[2]} ({self.accelerator_type or 'unknown type'}{state})"


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
        """Count what two list calls found; a queued resource whose node is there is that node, counted once."""
        nodes = tuple(nodes)
        made = {node.queued_resource for node in nodes} | {(node.zone, node.node_id) for node in nodes}
        items = [_of_node(node) for node in nodes]
        for request in queued:
            waiting = [one for one in request.node_ids if (request.zone, one) not in made]
            if request.name not in made and (waiting or not request.node_ids):
                items += [_of_queued(request)] * max(1, len(waiting))
        return cls(tuple(items), tuple(unreachable))

    def is_unreachable(self, zone: str) -> bool:
        """Whether nothing is known of a zone."""
        return zone in {name.rpartition("/")[2] for name in self.unreachable}

    def of_others(self, owner: str) -> Inventory:
        """Without what a run itself holds: it is adopted or deleted, never doubled."""
        return replace(self, items=tuple(item for item in self.items if item.owner != owner))


def _of_node(node: TPUView) -> InventoryItem:
    alive = node.phase not in _DEAD
    return InventoryItem(str(node.name), node.accelerator_type, node.tier, node.zone, run_of(node.labels), alive)


def _of_queued(request: QueuedView) -> InventoryItem:
    alive = request.phase not in _DEAD
    return InventoryItem(
        str(request.name), request.accelerator_type, request.tier, request.zone, run_of(request.labels), alive
    )
