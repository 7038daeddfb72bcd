# SPDX-License-Identifier: Apache-2.0
"""Delete what has no right left, and see what is left of it; for the reaper."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.tpu_messages import OperationView
from airflow_tpu.core.backoff import ExponentialBackoff
from airflow_tpu.core.ledger.events import EndReason
from airflow_tpu.core.run.expiry import Deletion, LeaseState, select_expired
from airflow_tpu.core.tpu.identity import Airflows
from airflow_tpu.core.tpu.labels import run_of
from airflow_tpu.core.tpu.resource_name import ResourceKind
from airflow_tpu.core.tpu.spec import Phase
from airflow_tpu.errors import TPUError, TransientError
from airflow_tpu.lifecycle.ends.end_reasons import endings_of
from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd, caused
from airflow_tpu.lifecycle.ends.records import note_ends
from airflow_tpu.lifecycle.project_snapshot import look_again, names_of

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.ledger.events import Opened
    from airflow_tpu.core.tpu.spec import QueuedView, TPUView
    from airflow_tpu.lifecycle.ends.end_reasons import Answers
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.stores.grant_stores import Stores

log = logging.getLogger(__name__)

GONE_WITHIN = dt.timedelta(minutes=1)
"""How long a round waits for what it has deleted; what takes longer is closed by the next round."""

_BACKOFF = ExponentialBackoff(first=0.25, longest=10.0)
"""Pauses between two looks."""


_MAY_BECOME_READY = frozenset({Phase.PENDING, Phase.UNKNOWN})


@dataclass
class Reaped:
    """What one round did and saw.

    :param deleted: what was asked to be deleted, and why.
    :param failed: what could not be deleted, with the error.
    :param foreign: resources that are not of this Airflow, and whose they are; never touched, but their chips count
        and may cost money.
    :param elsewhere: resources of this Airflow whose leases are in another bucket or prefix: their labels decide.
    :param unreachable: zones that did not answer: what lives there is unknown.
    :param awaited: zones in which a run has an open record: these have to answer.
    :param endings: how the incarnations ended that were deleted.
    :param closed: ledger records that were open without a TPU behind them.
    :param released: runs whose reservation was given back, because they will create nothing any more.
    :param unknown: names of run records and ledger events that cannot be read: what belongs to their runs is left.
    """

    deleted: list[Deletion] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    unreachable: tuple[str, ...] = ()
    awaited: frozenset[str] = frozenset()
    endings: list[IncarnationEnd] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return what a person looks for in the XCom afterwards: names, without the reasons, which the log has.

        A summary that is never read back, so not the form of :mod:`airflow_tpu.core.json_form`.
        """
        deleted = [str(deletion.name) for deletion in self.deleted]
        return {
            "deleted": deleted,
            "foreign": self.foreign,
            "elsewhere": self.elsewhere,
            "closed": self.closed,
            "released": self.released,
            "unknown": self.unknown,
            "unreachable": [*self.unreachable],
        }

    def tell(self) -> None:
        """Log it.

        :raises TransientError: something could not be deleted, or a zone in which a run has something did not answer.
        """
        for deletion in self.deleted:
            log.warning("deleted %s: %s", deletion.name, deletion.reason)
        for line in self.foreign:
            log.info("not of this Airflow, left alone: %s", line)
        for name in self.elsewhere:
            log.warning(
                "%s is of this Airflow, and its lease is in another bucket or prefix than the grant names now: it is "
                "deleted when the expiry on its label is over",
                name,
            )
        for node_id in self.closed:
            log.info("closed the ledger record of %s, which is gone", node_id)
        for run in self.released:
            log.info("gave back to the grant what %s had reserved", run)
        silent = [zone for zone in self.unreachable if zone in self.awaited]
        others = [zone for zone in self.unreachable if zone not in silent]
        if others:
            log.warning("no answer from %s, where no run has anything: the next round looks again", ", ".join(others))
        if self.failed or silent:
            failed = "; ".join(f"{name}: {text}" for name, text in self.failed.items())
            raise TransientError(
                f"not everything could be checked or deleted. Failed: {failed or 'none'}. Zones without an answer: "
                f"{', '.join(silent) or 'none'}. What lives there is still charged; the next round tries again."
            )


async def with_unlisted(client: TPUClient, snapshot: ProjectSnapshot, opened: Iterable[Opened]) -> ProjectSnapshot:
    """The snapshot with every TPU that has an open record and that no list shows, read by its name.

    :param client: the Cloud TPU API.
    :param snapshot: what the lists show.
    :param opened: open records, read after it.
    """
    listed = {name.id for name in snapshot.names}
    return await look_again(client, snapshot, names_of(event for event in opened if event.node_id not in listed))


async def delete_expired(
    client: TPUClient,
    snapshot: ProjectSnapshot,
    leases: Mapping[str, LeaseState] | None,
    airflows: Airflows,
    announced: Callable[[ProjectSnapshot], object] = lambda _: None,
) -> Reaped:
    """Delete what has no right left, in all zones; one failure does not stop the rest.

    :param client: the Cloud TPU API.
    :param snapshot: what is alive.
    :param leases: by digest of the run, read after the snapshot; None if they could not be read.
    :param airflows: this Airflow, whose TPUs are judged, and the others, whose TPUs are reported and never touched.
    :param announced: notes what is deleted before that is asked for.
    """
    everything: list[TPUView | QueuedView] = [*snapshot.queued, *snapshot.nodes]
    deletions = select_expired(airflows, everything, leases, client.clock.now())
    chosen = {deletion.name for deletion in deletions}
    # A laptop may have slept since the lists: what was on its way then may be READY, and charged, by now.
    coming = {item.name for item in everything if item.name in chosen and item.phase in _MAY_BECOME_READY}
    snapshot = await look_again(client, snapshot, coming)
    done = Reaped(unreachable=snapshot.unreachable)
    done.elsewhere = [str(item.name) for item in everything if _is_elsewhere(item, leases or {}, airflows)]
    done.foreign = [
        f"{item.name} ({item.accelerator_type} {item.tier}, {item.state}), {airflows.owner(item.labels)}"
        for item in everything
        if not airflows.owns(item.labels)
    ]
    seen = snapshot.named(chosen)
    announced(seen)
    answers: Answers = {}
    for node_id, answer in await asyncio.gather(*(_delete(client, deletion, done) for deletion in deletions)):
        if not isinstance(answers.get(node_id), OperationView):  # a request that is being deleted takes its node along
            answers[node_id] = answer
    held = {deletion.name.id for deletion in deletions if deletion.run in (leases or {})}
    for ending in endings_of(seen, answers, client.clock.now()):
        # Without a lease nobody knows what became of the run: it has not finished for all we know.
        done.endings.append(ending if ending.node_id in held else caused(ending, EndReason.DELETED))
    return done


def _is_elsewhere(item: TPUView | QueuedView, leases: Mapping[str, LeaseState], airflows: Airflows) -> bool:
    return airflows.owns(item.labels) and run_of(item.labels) not in leases and not airflows.keeps_lease(item.labels)


async def _delete(client: TPUClient, deletion: Deletion, done: Reaped) -> tuple[str, OperationView | TPUError | None]:
    name = deletion.name
    log.info("deleting %s: %s", name, deletion.reason)
    verb = client.delete_queued_resource if name.kind is ResourceKind.QUEUED else client.delete_node
    try:
        answer = await verb(name)
    except TPUError as error:
        log.error("could not delete %s, the next round tries again: %s", name, error)
        done.failed[str(name)] = str(error)
        return name.id, error
    done.deleted.append(deletion)
    return name.id, answer


def note(stores: Stores, done: Reaped) -> None:
    """Note how what was deleted has ended, for the round that sees it gone: this one, or the next.

    :param stores: where the end goes: to its lease, or to the ledger at once if no lease can keep it.
    :param done: what was deleted.
    """
    held = {record.key.digest: record.key for record in stores.runs.all()}
    runs = {deletion.name.id: deletion.run for deletion in done.deleted}
    for ending in done.endings:
        key = held.get(runs.get(ending.node_id, ""))
        if key is not None:
            note_ends(stores.runs, stores.ledger, key, [ending])


async def what_is_left(client: TPUClient, snapshot: ProjectSnapshot, done: Reaped) -> ProjectSnapshot:
    """The snapshot after the deletes, each deleted resource read by its name.

    They are waited for, for a short time: then their records can be closed in the same round.

    :param client: the Cloud TPU API.
    :param snapshot: what there was.
    :param done: what was deleted.
    """
    deleted = {deletion.name for deletion in done.deleted}
    until, looks = client.clock.now() + GONE_WITHIN, 0
    while True:
        left = await look_again(client, snapshot, deleted)
        if not deleted & left.names or client.clock.now() >= until:
            return left
        looks += 1
        await asyncio.sleep(_BACKOFF.pause(looks))
