"""Create the TPU of a lease, or find it: the one way in which this project asks for hardware.

Order matters. The name is written down before each call that creates something (a crash between the call and its
answer must leave a trace), the grant is asked with the project's whole live inventory, and a TPU that carries our run
is adopted, never doubled.
"""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from airflow_tpu.clients.tpu_messages import Stamp
from airflow_tpu.consequences import NOTHING_CREATED, stated
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.reservations import NOTHING, Reservation, Reservations
from airflow_tpu.core.ledger.events import Opened
from airflow_tpu.core.ledger.transfers import transfers
from airflow_tpu.core.tpu.labels import incarnation_of, labels, token_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView, TPUSpec, TPUView
from airflow_tpu.errors import DeadlineExceeded, LeaseLost, NameTaken, ResourceNotFound, TransientError
from airflow_tpu.lifecycle.incarnation_end import alive_again, noted_end, noted_ends, settled
from airflow_tpu.lifecycle.project_snapshot import Census, look_again, names_of, own_names, take_census
from airflow_tpu.lifecycle.release import close_incarnations, delete_seen, note_ends
from airflow_tpu.lifecycle.target import Target, target_of
from airflow_tpu.lifecycle.wait import Pace, until_gone
from airflow_tpu.stores.reservations import ReservationStore

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.core.catalogue.catalogue import AcceleratorType
    from airflow_tpu.core.catalogue.transfer_rates import Rates, StoredSize
    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.stores.ledger import LedgerStore
    from airflow_tpu.stores.runs import RunStore

T = TypeVar("T")
log = logging.getLogger(__name__)

# Any fixed namespace does: the same incarnation always asks with the same request id.
_NAMESPACE = uuid.UUID("6f1f8b2e-6d0b-4b43-9f6f-1f4a3c8f6a11")

HUSK_WINDOW = dt.timedelta(minutes=3)
"""How long the next create waits for the last incarnation's husk to go; after it the quota decides."""

_HUSK_POLL = 0.5


@dataclass(frozen=True)
class Order:
    """What is to be created, and everything the decision needs.

    :param spec: the TPU.
    :param accelerator: its type in the catalogue.
    :param grant: what may be used for free.
    :param bucket_locations: location of every ``gs://`` argument, None where unknown.
    :param paid_reason: why paid use is accepted, empty when it is not.
    :param ssh_keys: metadata line with the public key.
    :param project_number: number of the project that holds the grant's bucket, None where it may not be read.
    :param below: how much lies below each URI whose bucket is elsewhere, None where it could not be counted.
    :param rates: what a GiB costs between continents; a pair that is missing is unknown.
    :param artifacts_uri: which of the ``gs://`` arguments is written to.
    """

    spec: TPUSpec
    accelerator: AcceleratorType
    grant: Grant
    bucket_locations: Mapping[str, str | None]
    paid_reason: str
    ssh_keys: str
    project_number: str | None = None
    below: Mapping[str, StoredSize | None] = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    artifacts_uri: str = ""

    def request(self, key: RunKey, planned_end: dt.datetime) -> Request:
        """What the grant is asked for."""
        return Request(
            spec=self.spec,
            accelerator=self.accelerator,
            planned_end=planned_end,
            bucket_locations=self.bucket_locations,
            project_number=self.project_number,
            paid_reason=self.paid_reason,
            owner=key.digest,
            below=self.below,
            rates=self.rates,
        )

    def permit(self, census: Census, record: RunRecord, now: dt.datetime, reserved: Reservations = NOTHING) -> Permit:
        """Ask the grant.

        :param census: what was alive at ``now``.
        :param reserved: what runs have taken although the census cannot show it yet.
        :raises GrantError: with all reasons.
        """
        request = self.request(record.key, record.lease.expires_at)
        return authorize(self.grant, request, census.inventory(), now, reserved)

    def reserve(self, store: ReservationStore, census: Census, record: RunRecord, now: dt.datetime) -> Permit:
        """Ask the grant and take the chips from it, in one step that no other run can get in between.

        :param store: where every run writes what it takes.
        :param census: what was alive at ``now``.
        :raises GrantError: with all reasons; nothing was taken.
        """
        wanted = Reservation.of(record.key, self.spec, self.accelerator.chips, record.lease.expires_at)
        return store.take(wanted, lambda reserved: self.permit(census, record, now, reserved))


class Provisioner:
    """Ensures that the TPU of a lease exists or is on its way.

    :param client: the Cloud TPU API.
    :param runs: where the run record is kept.
    :param ledger: where incarnations are recorded.
    """

    def __init__(self, client: TPUClient, runs: RunStore, ledger: LedgerStore) -> None:
        self.client = client
        self.runs = runs
        self.ledger = ledger

    async def ensure(self, order: Order, record: RunRecord) -> Target:
        """Adopt the living TPU of this lease, or sweep its husks and create the next incarnation.

        :param order: what to create if there is nothing to adopt.
        :param record: of the run, as this attempt knows it.
        :return: the TPU, ready or on its way.
        :raises GrantError: the grant does not cover it.
        :raises CloudError: the API refused.
        """
        record = self.runs.confirm(record)
        names = self._names(record)
        census = await self._look(record, names)
        living = census.living(record.key)
        if living is not None:
            await self._end(census.before(record.key, incarnation_of(living.labels) or 0), record)
            return await self._adopt(order.spec, living, record)
        last = max(census.last_incarnation(record.key), self.ledger.last_incarnation(record.key))
        if await self._sweep(census, record, names):
            census = await take_census(self.client)  # the grant is asked with what is alive now
        return await self._create(order, census, record, last)

    def _names(self, record: RunRecord) -> set[ResourceName]:
        """What may exist of the run although no list shows it yet: the open records', and the current incarnation's."""
        return names_of(self.ledger.open_records(record.key)) | own_names(self.client, record)

    async def _look(self, record: RunRecord, names: set[ResourceName]) -> Census:
        """The project, with everything of this run asked for by its name: lists may be behind."""
        census = await take_census(self.client)
        return await look_again(self.client, census, {item.name for item in census.all_ours(record.key)} | names)

    async def _sweep(self, census: Census, record: RunRecord, names: set[ResourceName]) -> bool:
        """Delete what is left of this run's earlier incarnations, wait until it is gone, end their records.

        Husks hold quota and names until they are deleted (https://github.com/skypilot-org/skypilot/pull/1483).

        :return: whether there was anything.
        """
        swept = await delete_seen(self.client, census, record.key)
        for ending in swept.endings:
            log.info("deleting the husk %s (%s)", ending.node_id, ending.reason)
        note_ends(self.runs, self.ledger, record.key, swept.endings)
        if swept.endings or swept.failures:
            pace = Pace(_HUSK_POLL, self.client.clock.now() + HUSK_WINDOW)
            try:
                await until_gone(self.client, record.key, pace, swept, names)
            except DeadlineExceeded as error:
                # What is not gone has not ended, and what a silent zone hides may be alive: the records stay open.
                log.warning("creating all the same: %s", error)
                return True
        noted = self.runs.find(record.key) or record
        # A number that the lease did not have yet when the census was taken may be on its way.
        close_incarnations(
            self.ledger, noted, record.key, settled(noted_ends(noted), swept.endings), up_to=record.incarnation
        )
        return bool(swept.endings)

    async def _adopt(self, spec: TPUSpec, living: TPUView | QueuedView, record: RunRecord) -> Target:
        mine = token_of(living.labels) == record.lease.token
        log.info("%s %s (%s)", "using" if mine else "adopting, from an earlier attempt,", living.name, living.state)
        found = replace(spec, zone=living.zone)
        if isinstance(living, QueuedView):
            return target_of(replace(found, queued=True), living.queued_id)
        node_id = living.name.id
        if noted_end(record, node_id) is not None:
            self.runs.update(record, lambda now: alive_again(now, node_id))
        if not mine and living.phase is Phase.USABLE:
            # From here on the older attempt's on_kill no longer opens this TPU.
            stamp = replace(record.stamp, incarnation=incarnation_of(living.labels) or 0)
            await self.client.relabel(living.name, {**living.labels, **labels(record.key, stamp)})
        return target_of(replace(found, queued=living.queued_resource is not None), living.node_id)

    async def _create(self, order: Order, census: Census, record: RunRecord, last: int) -> Target:
        now = self.client.clock.now()
        with stated(NOTHING_CREATED):
            permit = order.reserve(self._reservations, census, record, now)
        previous, zone = record, order.spec.zone
        record = self.runs.update(record, lambda current: _advanced(current, previous, last, zone))
        await self._end(await self._named(previous), previous)
        if not self.ledger.open(_opened(order, permit, record, now)):
            raise TransientError(f"{record.node_id} is being created by another process of this run")
        stamp = Stamp(
            node_id=record.node_id,
            labels=labels(record.key, record.stamp),
            ssh_keys=order.ssh_keys,
            request_id=str(uuid.uuid5(_NAMESPACE, f"{order.spec.project_id}/{record.node_id}/{record.lease.token}")),
        )
        log.info(
            "creating %s: %s (%s) in %s, runtime %s, %s",
            stamp.node_id,
            order.spec.accelerator_type,
            order.spec.tier,
            order.spec.zone,
            order.spec.runtime_version,
            permit,
        )
        target = target_of(order.spec, stamp.node_id, await self._request(order.spec, stamp, permit))
        await self._check_place(record)
        return target

    async def _check_place(self, record: RunRecord) -> None:
        """Delete what was just created if the run has gone on, or ended, while the call was on its way.

        The next incarnation looks for this one after its number is in the lease, and this one looks at the lease
        after its create: one of them sees the other, in whatever order the two calls arrive.

        :raises LeaseLost: it has; the TPU is being deleted.
        """
        found = self.runs.find(record.key)
        has_place = found is not None and found.incarnation == record.incarnation
        if not has_place or record.lease.expires_at <= self.client.clock.now():
            await self._end(await self._named(record), record)
            raise LeaseLost(
                f"{record.node_id} came too late: its run has ended or has another TPU; it is deleted again"
            )

    async def _named(self, record: RunRecord) -> Census:
        """The current incarnation, asked for by its name: an answer that is never out of date."""
        return await look_again(self.client, Census((), (), ()), own_names(self.client, record))

    async def _end(self, census: Census, record: RunRecord) -> None:
        """Delete what a census has of the run and note how it ends; what cannot be deleted is left to the reaper."""
        swept = await delete_seen(self.client, census, record.key)
        note_ends(self.runs, self.ledger, record.key, swept.endings)

    @property
    def _reservations(self) -> ReservationStore:
        return ReservationStore(self.runs.hook, self.runs.root, clock=self.client.clock)

    async def _request(self, spec: TPUSpec, stamp: Stamp, permit: Permit) -> str:
        try:
            return await self.client.create(spec, stamp, permit)
        except (NameTaken, TransientError) as error:
            # The answer may have been lost although the node exists: ask by name before anything is repeated.
            target = target_of(spec, stamp.node_id)
            if await self._is_mine(target, stamp):
                log.info("%s exists although the answer was lost (%s)", stamp.node_id, error)
                return ""
            raise

    async def _is_mine(self, target: Target, stamp: Stamp) -> bool:
        try:
            if target.is_queued:
                found: Mapping[str, str] = (await self.client.queued_resource(target.queued)).labels
            else:
                found = (await self.client.node(target.node)).labels
        except ResourceNotFound:
            return False
        return all(found.get(key) == value for key, value in stamp.labels.items())


def _advanced(current: RunRecord, known: RunRecord, last: int, zone: str) -> RunRecord:
    if current.incarnation != known.incarnation:
        raise TransientError(f"{current.node_id} is being created by another process of this attempt")
    return current.next_incarnation(last, zone)


def _opened(order: Order, permit: Permit, record: RunRecord, now: dt.datetime) -> Opened:
    spec = order.spec
    return Opened(
        node_id=record.node_id,
        run=record.key.digest,
        dag_id=record.key.dag_id,
        run_id=record.key.run_id,
        project=spec.project_id,
        zone=spec.zone,
        accelerator_type=spec.accelerator_type,
        chips=order.accelerator.chips,
        tier=spec.tier,
        provisioning="queued-resource" if spec.queued else "node",
        external_ips=0 if spec.internal_ips else order.accelerator.hosts,
        allowance=permit.allowance_text,
        paid_reason=permit.paid_reason,
        requested_at=now,
        transfers=transfers(order.bucket_locations, order.below, spec.zone, order.artifacts_uri),
    )
