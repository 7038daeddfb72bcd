# SPDX-License-Identifier: Apache-2.0
"""Every node and queued resource of the project, of any origin: two list calls for all zones together.

A list may be some seconds behind what has been created and deleted; what is asked for by its name never is.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.clients import tpu_list_cache
from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.clients.tpu_list_cache import Fresh
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.tpu.labels import incarnation_of, is_of_dag_run, is_ours, run_of
from airflow_tpu.core.tpu.resource_name import ResourceKind, ResourceName, node_name
from airflow_tpu.core.tpu.spec import NODE, Phase, QueuedView, TPUView
from airflow_tpu.errors import AccessDenied, RateLimited, ResourceNotFound, TransientError

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_calls import Listing
    from airflow_tpu.core.ledger.events import Opened
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.stores.grant_stores import Stores
    from airflow_tpu.stores.ledger import LedgerStore

log = logging.getLogger(__name__)
T = TypeVar("T", bound="TPUView | QueuedView")

_LOOKS = 4
"""How often a zone that does not answer is asked before the try ends; the next try asks again."""

_ALIVE = frozenset({Phase.USABLE, Phase.PENDING, Phase.UNHEALTHY, Phase.UNKNOWN})


@dataclass(frozen=True)
class ProjectSnapshot:
    """Every node and queued resource of the project.

    :param nodes: nodes of all zones.
    :param queued: queued resources of all zones, dead ones included.
    :param unreachable: zones that did not answer.
    :param at: when the lists were asked for, None where that does not matter: it lacks what was created since.
    """

    nodes: tuple[TPUView, ...]
    queued: tuple[QueuedView, ...]
    unreachable: tuple[str, ...]
    at: dt.datetime | None = None

    def inventory(self) -> Inventory:
        """The snapshot as the grant counts it: a queued resource and its node are one item."""
        return Inventory.of(self.nodes, self.queued, self.unreachable)

    def is_silent(self, zone: str) -> bool:
        """Whether a zone did not answer: what is not seen there may be alive."""
        return zone in self.unreachable

    def with_answer_of(self, zone: str) -> ProjectSnapshot:
        """The snapshot itself, provided that a zone has answered.

        :raises TransientError: it has not: what is in use there is unknown, which never counts as free.
        """
        if self.is_silent(zone):
            raise TransientError(
                f"zone {zone} did not answer: what is in use there is unknown; the next try asks again"
            )
        return self

    def for_zones(self, zones: Collection[str] | None) -> ProjectSnapshot:
        """The snapshot in which only these zones count as unreachable: a run waits for no zone that it never named.

        :param zones: those that the run has named, None where that is not known: then every zone counts.
        """
        if zones is None:
            return self
        return replace(self, unreachable=tuple(zone for zone in self.unreachable if zone in zones))

    @property
    def names(self) -> set[ResourceName]:
        """Names of everything there is."""
        return {node.name for node in self.nodes} | {item.name for item in self.queued}

    @property
    def runs(self) -> set[str | None]:
        """Digests of the runs that have something; None among them for what is not ours."""
        return {run_of(node.labels) for node in self.nodes} | {run_of(item.labels) for item in self.queued}

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

    def of_dag_run(self, key: RunKey) -> ProjectSnapshot:
        """What all sessions of a DAG run have.

        :param key: of any of them.
        """
        return self._only(lambda item: is_of_dag_run(item.labels, key))

    def of_runs(self, digests: Collection[str]) -> ProjectSnapshot:
        """What the sessions of these digests have."""
        return self._only(lambda item: run_of(item.labels) in digests)

    def named(self, names: Collection[ResourceName]) -> ProjectSnapshot:
        """What has one of these names."""
        return self._only(lambda item: item.name in names)

    def _only(self, wanted: Callable[[TPUView | QueuedView], bool]) -> ProjectSnapshot:
        return replace(self, nodes=tuple(filter(wanted, self.nodes)), queued=tuple(filter(wanted, self.queued)))

    def living(self, key: RunKey) -> TPUView | QueuedView | None:
        """The run's newest TPU that can still be used or is on its way: the node, or a request without one yet.

        A node that is READY while its request is DELETING, or has ended, goes along with it in a moment.
        """
        going = {item.name for item in self.queued_ours(key) if item.phase not in _ALIVE}
        found = [item for item in self.all_ours(key) if item.phase in _ALIVE and _request_of(item) not in going]
        return max(found, key=_incarnation, default=None)

    def before(self, key: RunKey, incarnation: int) -> ProjectSnapshot:
        """What a run has of older incarnations: duplicates, made by calls that arrived late, and terminated nodes."""
        nodes = [node for node in self.ours(key) if _incarnation(node) < incarnation]
        queued = [item for item in self.queued_ours(key) if _incarnation(item) < incarnation]
        return ProjectSnapshot(tuple(nodes), tuple(queued), ())

    def last_incarnation(self, key: RunKey) -> int:
        """Highest incarnation number the project still knows of."""
        found = [_incarnation(item) for item in self.all_ours(key)]
        return max(found, default=0)


NOTHING_SEEN = ProjectSnapshot((), (), ())
"""A snapshot before any call: the start for reading some resources by name."""


def _request_of(item: TPUView | QueuedView) -> ResourceName | None:
    return item.queued_resource if isinstance(item, TPUView) else item.name


def _incarnation(item: TPUView | QueuedView) -> int:
    return incarnation_of(item.labels) or 0


async def take_snapshot(client: TPUClient) -> ProjectSnapshot:
    """List nodes and queued resources of all zones, side by side."""
    at = client.clock.now()
    return _joined(*await asyncio.gather(client.nodes(), client.queued_resources()), at)


async def snapshot_for_run(client: TPUClient, zones: Collection[str] | None) -> ProjectSnapshot:
    """:func:`take_snapshot` as one run judges it: a silent zone that it never named is logged, and decides nothing.

    :param client: the Cloud TPU API.
    :param zones: every zone that the run has named, None where that is not known.
    """
    snapshot = await take_snapshot(client)
    found = snapshot.for_zones(zones)
    others = [zone for zone in snapshot.unreachable if zone not in found.unreachable]
    if others:
        log.warning("no answer from %s: this run never asked there, so it continues", ", ".join(others))
    return found


async def answered_snapshot(client: TPUClient, zone: str) -> ProjectSnapshot:
    """:func:`take_snapshot`, asked again a few times while one zone does not answer.

    :param client: the Cloud TPU API.
    :param zone: what is in use there has to be known.
    :raises TransientError: it does not answer.
    """
    pause = client.calls.timing.pause
    for _ in range(_LOOKS - 1):
        snapshot = await take_snapshot(client)
        if not snapshot.is_silent(zone):
            return snapshot
        await asyncio.sleep(pause)
        pause = min(2 * pause, client.calls.timing.answer)
    return (await take_snapshot(client)).with_answer_of(zone)


async def shared_snapshot(client: TPUClient, fresh: Fresh) -> ProjectSnapshot:
    """The snapshot from the lists that all waits of this process share."""
    return _joined(*await tpu_list_cache.everything(client, fresh))


def _joined(nodes: Listing[TPUView], queued: Listing[QueuedView], at: dt.datetime | None = None) -> ProjectSnapshot:
    return ProjectSnapshot(nodes.items, queued.items, tuple(sorted({*nodes.unreachable, *queued.unreachable})), at)


async def look_again(client: TPUClient, snapshot: ProjectSnapshot, names: Iterable[ResourceName]) -> ProjectSnapshot:
    """The snapshot with these resources as they are now, whatever the lists have of them.

    :param client: the Cloud TPU API.
    :param snapshot: what the lists have shown.
    :param names: of nodes and queued resources.
    """
    asked, silent = sorted(set(names)), set[str]()
    # Nodes first, as in the lists: a node on its way whose request is ACTIVE after that has become READY.
    nodes = await _ask(client.node, [name for name in asked if name.kind is ResourceKind.NODE], silent)
    queued = await _ask(client.queued_resource, [name for name in asked if name.kind is ResourceKind.QUEUED], silent)
    return replace(
        snapshot,
        nodes=_corrected(snapshot.nodes, nodes),
        queued=_corrected(snapshot.queued, queued),
        unreachable=tuple(sorted({*snapshot.unreachable, *silent})),
    )


def names_of(opened: Iterable[Opened]) -> set[ResourceName]:
    """Names of everything that incarnations consist of, by their records."""
    found = set()
    for event in opened:
        node = node_name(event.project, event.zone, event.node_id)
        found |= {node} if event.provisioning == NODE else {node, node.queued}
    return found


def zones_of(ledger: LedgerStore, record: RunRecord | None, key: RunKey) -> set[str] | None:
    """Every zone that a run has ever named to the API: what lives elsewhere is not its own; None if that is not known.

    :param ledger: has a record of each create, written before the call.
    :param record: of the run, None when it is gone.
    :param key: the run.
    """
    zones = ledger.zones(key)
    return zones if zones is None or record is None else zones | {record.zone}


def named_zones(read: Callable[[], Stores], key: RunKey) -> set[str] | None:
    """:func:`zones_of` a run that is being ended; None, which is every zone, while its records cannot be read.

    :param read: gives the stores, whose place the grant names.
    :param key: the run.
    """
    try:
        stores = read()
        return zones_of(stores.ledger, stores.runs.find(key), key)
    except cloud_failures() as error:
        log.warning("the zones of %s cannot be read, so every zone of the project has to answer: %s", key.name, error)
        return None


def own_names(client: TPUClient, record: RunRecord) -> set[ResourceName]:
    """:func:`names_held` in the project that the client asks."""
    return names_held(client.endpoint.project_id, record)


def names_held(project: str, record: RunRecord) -> set[ResourceName]:
    """Names of what the current incarnation of a lease may consist of, however it was asked for."""
    if record.incarnation == 0:
        return set()
    node = node_name(project, record.zone, record.node_id)
    return {node, node.queued}


async def _ask(
    get: Callable[[ResourceName], Awaitable[T]], names: list[ResourceName], silent: set[str]
) -> dict[ResourceName, T | None]:
    """Each by its name, None for what is not there; a zone that does not answer is added to the silent ones."""

    async def one(name: ResourceName) -> dict[ResourceName, T | None]:
        try:
            return {name: await get(name)}
        except ResourceNotFound:
            return {name: None}
        except AccessDenied:  # a zone that was closed to the project since: its lists have the last word
            return {}
        except (TransientError, RateLimited):
            silent.add(name.zone)
            return {}

    found: dict[ResourceName, T | None] = {}
    for answer in await asyncio.gather(*map(one, names)):
        found.update(answer)
    return found


def _corrected(listed: tuple[T, ...], asked: Mapping[ResourceName, T | None]) -> tuple[T, ...]:
    others = [item for item in listed if item.name not in asked]
    return (*others, *(item for item in asked.values() if item is not None))
