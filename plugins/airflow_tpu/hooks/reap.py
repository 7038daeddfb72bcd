"""Carry the reaper's decisions out: every delete by itself, one failure never stops the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_tpu.core.lease import Lease
from airflow_tpu.core.names import is_managed, run_of
from airflow_tpu.core.reaping import LeaseState, Sentence, condemn, is_over
from airflow_tpu.errors import TPUError
from airflow_tpu.hooks.release import closing

if TYPE_CHECKING:
    from airflow_tpu.core.reservations import Reservations
    from airflow_tpu.core.tpu import QueuedView, TPUView
    from airflow_tpu.hooks.census import Census
    from airflow_tpu.hooks.lease import LeaseStore
    from airflow_tpu.hooks.ledger import LedgerStore
    from airflow_tpu.hooks.reservations import ReservationStore
    from airflow_tpu.hooks.tpu_client import TPUClient

log = logging.getLogger(__name__)

RunState = Callable[[str, str], str | None]
"""State of a DAG run by its ids: empty when there is no such run, None when Airflow could not be asked."""


@dataclass
class Reaped:
    """What one round did and saw.

    :param deleted: what was asked to be deleted, and why.
    :param failed: what could not be deleted, with the error.
    :param foreign: resources that are not ours; never touched, but their chips count and may cost money.
    :param unreachable: zones that did not answer: nobody can say what lives there.
    :param closed: ledger records that were open without a TPU behind them.
    :param released: runs whose reservation was given back, because they will create nothing any more.
    """

    deleted: list[Sentence] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    unreachable: tuple[str, ...] = ()
    closed: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)


async def reap(client: TPUClient, census: Census, leases: Mapping[str, LeaseState]) -> Reaped:
    """Delete what has no right left, in all zones.

    :param client: the Cloud TPU API.
    :param census: what is alive.
    :param leases: by digest of the run, read after the census.
    """
    everything: list[TPUView | QueuedView] = [*census.queued, *census.nodes]
    sentences = condemn(everything, leases, client.clock.now())
    done = Reaped(unreachable=census.unreachable)
    done.foreign = [
        f"{item.name} ({item.accelerator_type} {item.tier}, {item.state})"
        for item in everything
        if not is_managed(item.labels)
    ]
    await asyncio.gather(*(_execute(client, sentence, done) for sentence in sentences))
    return done


def lease_states(leases: LeaseStore, run_state: RunState) -> dict[str, LeaseState]:
    """Every lease of the bucket with the state of its DAG run."""
    found = {}
    for lease in leases.all():
        state = run_state(lease.key.dag_id, lease.key.run_id)
        found[lease.key.digest] = LeaseState(lease.key.digest, lease.expires_at, state)
    return found


def close_forgotten(ledger: LedgerStore, leases: list[Lease], census: Census) -> list[str]:
    """Close every ledger record that is open without a TPU behind it.

    A record whose TPU still exists is left to its own teardown, or to the next round.
    """
    alive = {node.node_id for node in census.nodes} | {item.queued_id for item in census.queued}
    known = {lease.key.digest: lease for lease in leases}
    closed = []
    for event in ledger.open_records():
        if event.node_id not in alive:
            ledger.close(closing(event, known.get(event.run), None, ledger.clock.now()))
            closed.append(event.node_id)
    return closed


def release_forgotten(
    store: ReservationStore, reserved: Reservations, leases: Mapping[str, LeaseState], census: Census
) -> list[str]:
    """Give back what runs without a right or without an end have reserved; what has a TPU waits for its delete.

    :param reserved: read *before* the leases: a lease is taken before its reservation.
    :return: names of the runs.
    """
    now = store.clock.now()
    living = {run_of(node.labels) for node in census.nodes} | {run_of(item.labels) for item in census.queued}
    gone = [entry for entry in reserved.entries if entry.owner not in living and is_over(leases.get(entry.owner), now)]
    if gone:
        store.drop(gone)
    return [entry.run for entry in gone]


async def _execute(client: TPUClient, sentence: Sentence, done: Reaped) -> None:
    log.info("deleting %s: %s", sentence.name, sentence.reason)
    try:
        if "/queuedResources/" in sentence.name:
            await client.delete_queued_resource(sentence.name)
        else:
            await client.delete_node(sentence.name)
    except TPUError as error:
        log.error("could not delete %s: %s", sentence.name, error)
        done.failed[sentence.name] = str(error)
    else:
        done.deleted.append(sentence)
