"""What the tasks of a run do, step by step as their operators do, each in a process of its own.

The operators themselves need a running Airflow; what is here is their order of calls and nothing else.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass
from typing import cast

from airflow_tpu.core.run.run_record import RunRecord
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.resource_name import ResourceName
from airflow_tpu.errors import (
    ConfigError,
    DeadlineExceeded,
    GrantError,
    LeaseLost,
    LedgerError,
    RateLimited,
    TPUError,
    TransientError,
)
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.lifecycle.ensure_tpu import Order, Provisioner
from airflow_tpu.lifecycle.incarnation_end import noted, noted_ends, settled
from airflow_tpu.lifecycle.project_snapshot import Census, look_again, names_of, take_census
from airflow_tpu.lifecycle.reap import (
    Reaped,
    RunState,
    close_forgotten,
    forget_runs,
    lease_states,
    note,
    reap,
    release_forgotten,
    what_is_left,
    with_unlisted,
)
from airflow_tpu.lifecycle.release import Release, abandon, close_incarnations, delete_seen
from airflow_tpu.lifecycle.target import Target
from airflow_tpu.lifecycle.wait import Arrival, Pace, until_gone, until_ready
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.reservations import ReservationStore
from airflow_tpu.stores.runs import RunStore
from tests.faults.paper_wire import PaperChannel, PaperClient, PaperStorage
from tests.faults.turns import Killed, Process

BUCKET = "trc-local"
ROOT = f"gs://{BUCKET}/trc"
POLL = 15.0
GONE_WITHIN = dt.timedelta(minutes=30)
TERM = dt.timedelta(hours=6)
EXPECTED = (TPUError, Killed)
"""What a process may end with: an error of the product's tree, never a bare one."""


@dataclass
class Station:
    """What one process of the product works with.

    :param process: the process.
    :param channel: its connection to the TPU API.
    :param storage: its connection to Cloud Storage.
    """

    process: Process
    channel: PaperChannel
    storage: PaperStorage

    @property
    def runs(self) -> RunStore:
        """Where leases are kept."""
        return RunStore(cast(ArtifactsHook, self.storage), ROOT, clock=self.process.clock)

    @property
    def ledger(self) -> LedgerStore:
        """Where incarnations are recorded."""
        return LedgerStore(cast(ArtifactsHook, self.storage), ROOT, clock=self.process.clock)

    @property
    def reservations(self) -> ReservationStore:
        """Where chips are taken."""
        return ReservationStore(cast(ArtifactsHook, self.storage), ROOT, clock=self.process.clock)

    def now(self) -> dt.datetime:
        """This moment."""
        return self.process.clock.now()

    def client(self) -> PaperClient:
        """A client, to be entered."""
        return PaperClient(self.channel, self.process)


def lease(station: Station, key: RunKey, order: Order) -> None:
    """The setup task: take the lease, then the chips."""

    async def ask() -> Census:
        async with station.client() as client:
            return await take_census(client)

    now = station.now()
    census = station.process.run(ask())
    taken = station.runs.acquire(key, order.spec.zone, now + TERM)
    try:
        order.reserve(station.reservations, census, taken, now)
    except GrantError:
        if taken.incarnation == 0:
            station.runs.release(key)
        raise


def train(station: Station, key: RunKey, order: Order, seconds: float) -> None:
    """Make sure of the TPU, wait for it, use it."""
    held = station.runs.read(key)
    if held.lease.expires_at <= station.now():
        raise DeadlineExceeded("the lease has ended")
    try:
        arrival = station.process.run(_provide(station, order, held))
    except TPUError as error:
        if not isinstance(error, ConfigError | LedgerError | RateLimited | TransientError):
            kill(station, held)
        raise
    node_id = arrival.view.node_id
    if held.life(node_id).ready_at is None:
        held = station.runs.update(
            held, lambda now: now.with_life(node_id, ready_at=arrival.ready_at, source=arrival.source)
        )
    station.process.sleep(seconds)


async def _provide(station: Station, order: Order, held: RunRecord) -> Arrival:
    async with station.client() as client:
        target: Target = await Provisioner(client, station.runs, station.ledger).ensure(order, held)
        return await until_ready(client, target, Pace(POLL, held.lease.expires_at))


def kill(station: Station, held: RunRecord) -> None:
    """Delete what carries this attempt's token: because it gives up, or because somebody ends it, at any later time."""

    async def end() -> None:
        async with station.client() as client:
            await abandon(client, station.runs, station.ledger, held.key, held.lease.token)

    station.process.run(end())


def teardown(station: Station, key: RunKey) -> None:
    """Delete everything of the run, keep the books, wait until it is gone, give lease and chips back."""

    async def ask(names: set[ResourceName]) -> Release:
        async with station.client() as client:
            return await delete_seen(client, await look_again(client, await take_census(client), names), key)

    async def gone(until: dt.datetime) -> None:
        async with station.client() as client:
            await until_gone(client, key, Pace(POLL, until), asked, names)

    until = station.now() + GONE_WITHIN
    asked = station.process.run(ask(set()))
    with contextlib.suppress(LeaseLost):
        station.runs.update(station.runs.read(key), lambda now: noted(now, asked.endings))
    asked.check()
    names = names_of(station.ledger.open_records(key))
    station.process.run(gone(until))
    known = station.runs.find(key)
    if unseen := close_incarnations(station.ledger, known, key, settled(noted_ends(known), asked.endings)):
        station.process.run(ask(names_of(unseen))).check_none()
    station.reservations.release(key.digest)
    station.runs.release(key)


def reaper(station: Station, run_state: RunState) -> None:
    """One round."""

    async def look() -> Census:
        async with station.client() as client:
            return await take_census(client)

    async def look_for_the_unlisted() -> Census:
        async with station.client() as client:
            return await with_unlisted(client, listed, opened)

    async def act() -> Reaped:
        async with station.client() as client:
            return await reap(client, census, states)

    async def look_for_the_rest() -> Census:
        async with station.client() as client:
            return await what_is_left(client, census, done)

    listed = station.process.run(look())
    opened = station.ledger.open_records()
    census = station.process.run(look_for_the_unlisted())
    reserved = station.reservations.readable()
    states = lease_states(station.runs, run_state)
    done = station.process.run(act())
    note(station.ledger, station.runs, done)
    left = station.process.run(look_for_the_rest())
    close_forgotten(station.ledger, station.runs, states, left, opened, done.endings)
    release_forgotten(station.reservations, reserved, states, left)
    forget_runs(station.runs, states, left)
