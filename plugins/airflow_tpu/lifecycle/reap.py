"""Carry the reaper's decisions out: every delete by itself, one failure never stops the rest."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_tpu.clients.tpu_messages import OperationView
from airflow_tpu.core.run.expiry import LeaseState, Sentence, condemn, is_over
from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import is_managed, run_of
from airflow_tpu.core.tpu.resource_name import Kind
from airflow_tpu.errors import TPUError
from airflow_tpu.lifecycle.incarnation_end import Ending
from airflow_tpu.lifecycle.project_snapshot import look_again, names_of
from airflow_tpu.lifecycle.release import close_record, closing, endings_of, note_ends

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.grant.reservations import Reservations
    from airflow_tpu.core.ledger.events import Opened
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.core.tpu.spec import QueuedView, TPUView
    from airflow_tpu.lifecycle.project_snapshot import Census
    from airflow_tpu.lifecycle.release import Answers
    from airflow_tpu.stores.ledger import LedgerStore
    from airflow_tpu.stores.reservations import ReservationStore
    from airflow_tpu.stores.runs import RunStore

log = logging.getLogger(__name__)

GONE_WITHIN = dt.timedelta(minutes=1)
"""How long a round waits for what it has deleted; what takes longer is closed by the next round."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 10.0
"""Seconds between two looks."""

RunState = Callable[[str, str], str | None]
"""State of a DAG run by its ids: empty when there is no such run, None when Airflow could not be asked."""


@dataclass
class Reaped:
    """What one round did and saw.

    :param deleted: what was asked to be deleted, and why.
    :param failed: what could not be deleted, with the error.
    :param foreign: resources that are not ours; never touched, but their chips count and may cost money.
    :param unreachable: zones that did not answer: nobody can say what lives there.
    :param endings: how the incarnations ended that were deleted.
    :param closed: ledger records that were open without a TPU behind them.
    :param released: runs whose reservation was given back, because they will create nothing any more.
    """

    deleted: list[Sentence] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    unreachable: tuple[str, ...] = ()
    endings: list[Ending] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)


async def reap(client: TPUClient, census: Census, leases: Mapping[str, LeaseState] | None) -> Reaped:
    """Delete what has no right left, in all zones.

    :param client: the Cloud TPU API.
    :param census: what is alive.
    :param leases: by digest of the run, read after the census; None if they could not be read.
    """
    everything: list[TPUView | QueuedView] = [*census.queued, *census.nodes]
    sentences = condemn(everything, leases, client.clock.now())
    done = Reaped(unreachable=census.unreachable)
    done.foreign = [
        f"{item.name} ({item.accelerator_type} {item.tier}, {item.state})"
        for item in everything
        if not is_managed(item.labels)
    ]
    answers: Answers = {}
    for node_id, answer in await asyncio.gather(*(_execute(client, sentence, done) for sentence in sentences)):
        if not isinstance(answers.get(node_id), OperationView):  # a request that is being deleted takes its node along
            answers[node_id] = answer
    condemned = {sentence.name for sentence in sentences}
    done.endings.extend(
        endings_of(
            [node for node in census.nodes if node.name in condemned],
            [item for item in census.queued if item.name in condemned],
            answers,
            client.clock.now(),
        )
    )
    return done


async def with_unlisted(client: TPUClient, census: Census, opened: Iterable[Opened]) -> Census:
    """The census with every TPU that has an open record and that no list shows, asked for by its name.

    :param client: the Cloud TPU API.
    :param census: what the lists show.
    :param opened: open records, read after it.
    """
    listed = {name.id for name in _names(census)}
    return await look_again(client, census, names_of(event for event in opened if event.node_id not in listed))


async def what_is_left(client: TPUClient, census: Census, done: Reaped) -> Census:
    """The census after the deletes; each resource that was deleted is asked for by its name.

    It is waited for, for a short time: then its record can be closed in the same round.

    :param client: the Cloud TPU API.
    :param census: what there was.
    :param done: what was deleted.
    """
    condemned = {sentence.name for sentence in done.deleted}
    until, pause = client.clock.now() + GONE_WITHIN, _FIRST_PAUSE
    while True:
        left = await look_again(client, census, condemned)
        if not condemned & _names(left) or client.clock.now() >= until:
            return left
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def note(ledger: LedgerStore, runs: RunStore, done: Reaped) -> None:
    """Note how what was deleted has ended, for whoever sees it gone: this round, or the next.

    :param ledger: where the end goes at once if no lease can keep it.
    :param runs: where the run record is kept.
    :param done: what was deleted.
    """
    held = {record.key.digest: record.key for record in runs.all()}
    deleted = {sentence.name.id: sentence.run for sentence in done.deleted}
    for ending in done.endings:
        key = held.get(deleted.get(ending.node_id, ""))
        if key is not None:
            note_ends(runs, ledger, key, [ending])


def lease_states(runs: RunStore, run_state: RunState, here: str = "") -> dict[str, LeaseState]:
    """Every lease of the bucket with the state of its DAG run.

    :param here: address of this Airflow. What another one holds is not ours to judge: it may have a run of the same
        ids, or none, and says nothing of the other's. Its TPU goes when its own lease ends.
    """
    found = {}
    for record in runs.all():
        elsewhere = record.lease.holder.where if record.lease.holder is not None else ""
        foreign = bool(here and elsewhere and elsewhere != here)
        state = None if foreign else run_state(record.key.dag_id, record.key.run_id)
        found[record.key.digest] = LeaseState(record.key.digest, record.lease.expires_at, state, record.lease.token)
    return found


def close_forgotten(
    ledger: LedgerStore,
    runs: RunStore,
    states: Mapping[str, LeaseState],
    census: Census,
    records: Iterable[Opened],
    endings: Iterable[Ending] = (),
) -> list[str]:
    """Close every ledger record that is open without a TPU behind it.

    A record whose TPU still exists, or whose zone does not answer, is left to its own teardown, or to the next round.
    Of a TPU whose lease is gone nobody will know more in the next round than in the one that has deleted it.

    :param states: read after the census.
    :param census: what is left (:func:`what_is_left`).
    :param records: the open records that were looked for by name.
    :param endings: of the TPUs that this round has deleted.
    """
    ended = {ending.node_id: ending for ending in endings}
    alive = {name.id for name in _names(census)}
    known = {record.key.digest: record for record in runs.all()}  # read last: it is written before the ledger's record
    now, closed = ledger.clock.now(), []
    for event in records:
        record = known.get(event.run)
        is_gone = event.node_id not in alive and not census.is_silent(event.zone)
        is_gone = is_gone and not _may_be_coming(event, record, states.get(event.run), census)
        if is_gone or (event.node_id in ended and (record is None or event.node_id not in alive)):
            close_record(ledger, event, closing(event, record, ended.get(event.node_id), now))
            closed.append(event.node_id)
    return closed


def _may_be_coming(event: Opened, record: RunRecord | None, state: LeaseState | None, census: Census) -> bool:
    """Whether the census may be too old to show this TPU: its record is written before it is asked for."""
    if record is None or event.node_id != record.node_id:
        return False
    taken_again = state is None or state.token != record.lease.token
    if not taken_again and is_over(state, census.at or event.requested_at):
        return False
    ready_at = record.life(event.node_id).ready_at
    return ready_at is None or census.at is None or ready_at >= census.at


def release_forgotten(
    store: ReservationStore, reserved: Reservations, leases: Mapping[str, LeaseState], census: Census
) -> list[str]:
    """Give back what runs without a right or without an end have reserved; what has a TPU waits for its delete.

    :param reserved: read *before* the leases: a lease is taken before its reservation.
    :return: names of the runs.
    """
    now = store.clock.now()
    living = _runs_of(census)
    gone = [
        entry
        for entry in reserved.entries
        if entry.owner not in living and not census.is_silent(entry.zone) and is_over(leases.get(entry.owner), now)
    ]
    if gone:
        store.drop(gone)
    return [entry.run for entry in gone]


def forget_runs(runs: RunStore, found: Mapping[str, LeaseState], census: Census) -> list[str]:
    """Remove the leases of DAG runs that are over and have no TPU left; a run that is cleared takes a new one.

    :param found: read before this, with the token of that moment: a lease taken again since stays.
    :return: names of the runs.
    """
    living = _runs_of(census)
    over = {digest: state.token for digest, state in found.items() if state.run_is_over and digest not in living}
    mine = [record for record in runs.all() if record.key.digest in over and not census.is_silent(record.zone)]
    return [record.key.name for record in mine if runs.forget(record.key, over[record.key.digest])]


def _names(census: Census) -> set[ResourceName]:
    return {node.name for node in census.nodes} | {item.name for item in census.queued}


def _runs_of(census: Census) -> set[str | None]:
    return {run_of(node.labels) for node in census.nodes} | {run_of(item.labels) for item in census.queued}


async def _execute(client: TPUClient, sentence: Sentence, done: Reaped) -> tuple[str, OperationView | TPUError | None]:
    log.info("deleting %s: %s", sentence.name, sentence.reason)
    node_id = sentence.name.id
    try:
        if sentence.name.kind is Kind.QUEUED:
            answer = await client.delete_queued_resource(sentence.name)
        else:
            answer = await client.delete_node(sentence.name)
    except TPUError as error:
        log.error("could not delete %s: %s", sentence.name, error)
        done.failed[str(sentence.name)] = str(error)
        return node_id, error
    done.deleted.append(sentence)
    return node_id, answer
