# SPDX-License-Identifier: Apache-2.0
"""Adopt the TPU of a lease or create it: the one way in which this project asks for hardware.

Order matters. The name is written down before each call that creates something (a crash between the call and its
answer must leave a trace), the grant is asked with the project's whole live inventory, and a TPU that carries our run
is adopted, never doubled.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_tpu.consequences import NOTHING_CREATED, stated
from airflow_tpu.core.tpu.labels import incarnation_of, labels, token_of
from airflow_tpu.core.tpu.spec import Phase, QueuedView, TPUView
from airflow_tpu.errors import (
    DeadlineExceeded,
    LeaseLost,
    NameTaken,
    RateLimited,
    ResourceNotFound,
    RowTaken,
    TransientError,
)
from airflow_tpu.lifecycle.creating.refusals import failure_counted
from airflow_tpu.lifecycle.ends.deletion import delete_seen
from airflow_tpu.lifecycle.ends.incarnation_end import alive_again, noted_end, noted_ends, settled
from airflow_tpu.lifecycle.ends.records import close_incarnations, note_before, note_ends
from airflow_tpu.lifecycle.project_snapshot import (
    NOTHING_SEEN,
    ProjectSnapshot,
    look_again,
    names_of,
    own_names,
    snapshot_for_run,
    take_snapshot,
    zones_of,
)
from airflow_tpu.lifecycle.sharing.room import require_row
from airflow_tpu.lifecycle.waits.gone import until_gone
from airflow_tpu.lifecycle.waits.polling import PollPolicy
from airflow_tpu.lifecycle.waits.target import Target, target_of

if TYPE_CHECKING:
    from airflow_tpu.clients.tpu_api import TPUClient
    from airflow_tpu.clients.tpu_messages import Stamp
    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.lifecycle.order import Order
    from airflow_tpu.stores.grant_stores import Stores

log = logging.getLogger(__name__)

TERMINATED_WINDOW = dt.timedelta(minutes=3)
"""How long a create waits for the last incarnation's terminated node to go; after it the quota decides."""

_FIRST_LOOK, _LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two looks at it, doubled each time: one that is gone soon delays little, another costs few calls."""


class Provisioner:
    """Ensures that the TPU of a lease exists or is on its way.

    :param client: the Cloud TPU API.
    :param stores: where the lease, the incarnations and the reservations are kept.
    :param order: what to create if there is nothing to adopt.
    :param record: of the run, as this attempt knows it.
    """

    def __init__(self, client: TPUClient, stores: Stores, order: Order, record: RunRecord) -> None:
        self.client = client
        self.stores = stores
        self.order = order
        self.record = record
        self.key = record.key
        self._zones: set[str] | None = None

    async def ensure(self) -> Target:
        """Adopt the living TPU of this lease, or delete its terminated nodes and create the next incarnation.

        :return: the TPU, ready or on its way.
        :raises GrantError: the grant does not cover it.
        :raises CloudError: the API refused.
        """
        self.record = self.stores.runs.confirm(self.record)
        names = names_of(self.stores.ledger.open_records(self.key)) | own_names(self.client, self.record)
        self._zones = zones_of(self.stores.ledger, replace(self.record, zone=self.order.spec.zone), self.key)
        snapshot = await self._look(names)
        living = snapshot.living(self.key)
        if living is not None:
            await self._delete(snapshot.before(self.key, incarnation_of(living.labels) or 0))
            target = await self._adopt(living)
            return replace(target, host_keys=self.record.life(target.node_id).host_keys)
        last = max(snapshot.last_incarnation(self.key), self.stores.ledger.last_incarnation(self.key))
        if await self._sweep(snapshot, names):
            snapshot = await take_snapshot(self.client)  # the grant is asked with what is alive now
        return await self._create(snapshot, last)

    async def _look(self, names: set[ResourceName]) -> ProjectSnapshot:
        """The project, with everything of this run read by its name: lists may be stale."""
        snapshot = await snapshot_for_run(self.client, self._zones)
        return await look_again(self.client, snapshot, {item.name for item in snapshot.all_ours(self.key)} | names)

    async def _sweep(self, snapshot: ProjectSnapshot, names: set[ResourceName]) -> bool:
        """Delete what is left of this run's earlier incarnations, wait until it is gone, end their records.

        Terminated nodes hold quota and names until they are deleted
        (https://github.com/skypilot-org/skypilot/pull/1483).

        :return: whether there was anything.
        """
        note_before(self.stores, self.key, snapshot, self.record.lease.token)
        swept = await delete_seen(self.client, snapshot, self.key)
        for ending in swept.endings:
            log.info("deleting the terminated node %s (%s) before the next is created", ending.node_id, ending.reason)
        note_ends(self.stores.runs, self.stores.ledger, self.key, swept.endings)
        if swept.endings or swept.failures:
            until = self.client.clock.now() + TERMINATED_WINDOW
            policy = PollPolicy(_FIRST_LOOK, until, longest=_LONGEST_PAUSE)
            try:
                await until_gone(self.client, self.key, policy, swept, names, self._zones)
            except DeadlineExceeded as error:
                # What is not gone has not ended, and what a silent zone hides may be alive: the records stay open.
                log.warning("creating the next TPU although the last one is not gone: %s", error)
                return True
        noted = self.stores.runs.find(self.key) or self.record
        # A number that the lease did not have yet when the snapshot was taken may be on its way.
        ends = settled(noted_ends(noted), swept.endings)
        close_incarnations(self.stores.ledger, noted, self.key, ends, up_to=self.record.incarnation)
        return bool(swept.endings)

    async def _adopt(self, living: TPUView | QueuedView) -> Target:
        mine = token_of(living.labels) == self.record.lease.token
        log.info("%s %s (%s)", "using" if mine else "adopting, from an earlier attempt,", living.name, living.state)
        found = replace(self.order.spec, zone=living.zone)
        if isinstance(living, QueuedView):
            return target_of(replace(found, queued=True), living.queued_id)
        if noted_end(self.record, living.node_id) is not None or self.record.life(living.node_id).deleting:
            self.stores.runs.update(self.record, lambda now: alive_again(now, living.node_id))
        if not mine and living.phase is Phase.USABLE:
            # From here on the older attempt's on_kill no longer opens this TPU.
            stamp = replace(
                self.record.stamp, incarnation=incarnation_of(living.labels) or 0, root=self.stores.runs.root
            )
            await self.client.relabel(living.name, {**living.labels, **labels(self.key, stamp)})
        return target_of(replace(found, queued=living.queued_resource is not None), living.node_id)

    async def _create(self, snapshot: ProjectSnapshot, last: int) -> Target:
        now = self.client.clock.now()
        with stated(NOTHING_CREATED):
            permit = self.order.reserve(self.stores.reservations, snapshot, self.record, now)
        await self._next_incarnation(last)
        if not self.stores.ledger.open(self.order.opened(permit, self.record, now)):
            raise TransientError(f"{self.record.node_id} is being created by another process of this run")
        target = await self._request(permit)
        await self._check_place()
        if permit.allowance is not None:  # what is billed anyway takes nothing from a row
            await self._check_row()
        return target

    async def _next_incarnation(self, last: int) -> None:
        """Write the next number into the lease, then delete what a create that is still on its way may have brought."""
        previous = self.record

        def advanced(current: RunRecord) -> RunRecord:
            if current.incarnation != previous.incarnation:
                raise TransientError(f"{current.node_id} is being created by another process of this attempt")
            return current.next_incarnation(last, self.order.spec.zone)

        self.record = self.stores.runs.update(previous, advanced)
        await self._delete(await self._named(previous))

    async def _request(self, permit: Permit) -> Target:
        spec, stamp = self.order.spec, self.order.stamp(self.record, self.stores.runs.root)
        log.info(
            "creating %s: %s (%s) in %s, runtime %s, %s",
            stamp.node_id,
            spec.accelerator_type,
            spec.tier,
            spec.zone,
            spec.runtime_version,
            permit,
        )
        try:
            return target_of(spec, stamp.node_id, await self.client.create(spec, stamp, permit))
        except (NameTaken, TransientError) as error:
            # The answer may have been lost although the node exists: ask by name before anything is repeated.
            target = target_of(spec, stamp.node_id)
            if await self._is_mine(target, stamp):
                log.info("%s exists although the answer was lost (%s): using it", stamp.node_id, error)
                return target
            if isinstance(error, TransientError):
                raise failure_counted(self.stores.runs, self.record, error) from error
            raise

    async def _is_mine(self, target: Target, stamp: Stamp) -> bool:
        try:
            if target.is_queued:
                found: Mapping[str, str] = (await self.client.queued_resource(target.queued)).labels
            else:
                found = (await self.client.node(target.node)).labels
        except ResourceNotFound:
            return False
        except (TransientError, RateLimited) as error:
            log.warning("whether %s exists is unknown, the next try looks again: %s", stamp.node_id, error)
            return False
        return all(found.get(key) == value for key, value in stamp.labels.items())

    async def _check_place(self) -> None:
        """Delete what was just created if the run has moved on, or ended, while the call was on its way.

        The next incarnation looks for this one after its number is in the lease, and this one looks at the lease
        after its create: one of them sees the other, in whatever order the two calls arrive.

        :raises LeaseLost: it has; the TPU is being deleted.
        """
        found = self.stores.runs.find(self.key)
        has_place = found is not None and found.incarnation == self.record.incarnation
        if not has_place or self.record.lease.expires_at <= self.client.clock.now():
            await self._delete(await self._named(self.record))
            late = f"{self.record.node_id} came too late: its run has ended or has another TPU"
            raise LeaseLost(f"{late}; it is deleted again")

    async def _check_row(self) -> None:
        """Delete what was just created if an Airflow with another bucket has been faster.

        :raises RowTaken: it has; the TPU is being deleted.
        """
        request = self.order.request(self.key, self.record.lease.expires_at)
        try:
            await require_row(self.client, self.order.grant, request, self.record)
        except RowTaken:
            await self._delete(await self._named(self.record))
            raise

    async def _named(self, record: RunRecord) -> ProjectSnapshot:
        """The incarnation of a lease, read by its name: an answer that is never stale."""
        return await look_again(self.client, NOTHING_SEEN, own_names(self.client, record))

    async def _delete(self, snapshot: ProjectSnapshot) -> None:
        """Delete what a snapshot has of the run and note how it ends; the reaper takes what cannot be deleted."""
        note_before(self.stores, self.key, snapshot)
        deleted = await delete_seen(self.client, snapshot, self.key)
        note_ends(self.stores.runs, self.stores.ledger, self.key, deleted.endings)
