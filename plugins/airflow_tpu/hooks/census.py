"""What is alive in the project, whoever made it: two list calls for all zones together."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.inventory import Inventory
from airflow_tpu.core.names import incarnation_of, is_ours
from airflow_tpu.core.tpu import Phase, QueuedView, TPUView

if TYPE_CHECKING:
    from airflow_tpu.core.names import RunKey
    from airflow_tpu.hooks.tpu_client import TPUClient

_ALIVE = frozenset({Phase.USABLE, Phase.PENDING, Phase.UNHEALTHY, Phase.UNKNOWN})


@dataclass(frozen=True)
class Census:
    """Every node and queued resource of the project.

    :param nodes: nodes of all zones.
    :param queued: queued resources of all zones, dead ones included.
    :param unreachable: zones that did not answer.
    :param at: when the lists were asked for, if that matters to anybody: what was created since is not in them.
    """

    nodes: tuple[TPUView, ...]
    queued: tuple[QueuedView, ...]
    unreachable: tuple[str, ...]
    at: dt.datetime | None = None

    def inventory(self) -> Inventory:
        """The census as the grant counts it: a queued resource and its node are one item."""
        return Inventory.of(self.nodes, self.queued, self.unreachable)

    def is_silent(self, zone: str) -> bool:
        """Whether a zone did not answer: what is not seen there may be alive."""
        return zone in {name.rpartition("/")[2] for name in self.unreachable}

    def ours(self, key: RunKey) -> list[TPUView]:
        """Nodes of one run, newest incarnation first."""
        mine = [node for node in self.nodes if is_ours(node.labels, key)]
        return sorted(mine, key=_incarnation, reverse=True)

    def queued_ours(self, key: RunKey) -> list[QueuedView]:
        """Queued resources of one run, newest incarnation first."""
        mine = [queued for queued in self.queued if is_ours(queued.labels, key)]
        return sorted(mine, key=_incarnation, reverse=True)

    def all_ours(self, key: RunKey) -> list[TPUView | QueuedView]:
        """Nodes, then queued resources of one run."""
        return [*self.ours(key), *self.queued_ours(key)]

    def living(self, key: RunKey) -> TPUView | QueuedView | None:
        """The run's newest TPU that can still be used or is on its way: the node, or a request without one yet."""
        found = [item for item in self.all_ours(key) if item.phase in _ALIVE]
        return max(found, key=_incarnation, default=None)

    def before(self, key: RunKey, incarnation: int) -> Census:
        """Only what a run has of older incarnations: doubles, made by calls that arrived late, and husks."""
        nodes = [node for node in self.ours(key) if _incarnation(node) < incarnation]
        queued = [item for item in self.queued_ours(key) if _incarnation(item) < incarnation]
        return Census(tuple(nodes), tuple(queued), ())

    def last_incarnation(self, key: RunKey) -> int:
        """Highest incarnation number the project still knows of."""
        found = [_incarnation(item) for item in self.all_ours(key)]
        return max(found, default=0)


def _incarnation(item: TPUView | QueuedView) -> int:
    return incarnation_of(item.labels) or 0


async def take_census(client: TPUClient) -> Census:
    """List nodes and queued resources of all zones, side by side."""
    at = client.clock.now()
    nodes, queued = await asyncio.gather(client.nodes(), client.queued_resources())
    unreachable = tuple(sorted({*nodes.unreachable, *queued.unreachable}))
    return Census(nodes.items, queued.items, unreachable, at)
