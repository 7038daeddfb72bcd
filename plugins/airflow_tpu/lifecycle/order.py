# SPDX-License-Identifier: Apache-2.0
"""A TPU that is to be created, with everything that the grant's decision needs."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from airflow_tpu.clients.tpu_messages import Stamp
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.reservations import NOTHING, Reservation, Reservations
from airflow_tpu.core.ledger.events import GrantTerm, Opened
from airflow_tpu.core.ledger.transfers import transfers
from airflow_tpu.core.run.start_window import first_of
from airflow_tpu.core.tpu.labels import labels
from airflow_tpu.core.tpu.spec import NODE, QUEUED_RESOURCE, TPUSpec
from airflow_tpu.core.tpu.startup_script import StartupScript
from airflow_tpu.settings import remote_dir

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Price
    from airflow_tpu.core.catalogue.transfer_rates import Rates, StoredSize
    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.identity import KnownAirflow
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
    from airflow_tpu.stores.reservations import ReservationStore

# Any fixed namespace does: the same incarnation always asks with the same request id.
_NAMESPACE = uuid.UUID("6f1f8b2e-6d0b-4b43-9f6f-1f4a3c8f6a11")


@cache
def _shipped(remote: Path) -> StartupScript:
    return StartupScript.build(remote)


@dataclass(frozen=True)
class Order:
    """What is to be created, and everything the decision needs.

    :param spec: the TPU.
    :param accelerator: its type in the catalogue.
    :param grant: what may be used for free.
    :param bucket_locations: location of every ``gs://`` argument, None where unknown.
    :param paid_reason: the line that accepts paid use, empty when there is none.
    :param ssh_keys: metadata line with the public key.
    :param project_number: number of the project that holds the grant's bucket, None where it may not be read.
    :param below: how much lies below each URI whose bucket is elsewhere, None where it could not be counted.
    :param rates: what a GiB costs between continents; a pair that is missing is unknown.
    :param artifacts_uri: which of the ``gs://`` arguments is written to.
    :param price: list price of the TPU, None if none is published.
    :param closes: when the run no longer wants a first TPU; None if it waits until its deadline.
    :param uri_fields: field of the form that each ``gs://`` argument stands in.
    :param names: reads what the bucket knows of other Airflows, for a refusal.
    :param startup: gives the TPU back when no run arrives on it; None for a TPU without such a guard.
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
    price: Price | None = None
    closes: dt.datetime | None = None
    uri_fields: Mapping[str, str] = field(default_factory=dict)
    names: Callable[[], Mapping[str, KnownAirflow]] = dict
    startup: StartupScript | None = field(default_factory=lambda: _shipped(remote_dir()))

    def request(self, key: RunKey, planned_end: dt.datetime, around: Iterable[str] = ()) -> Request:
        """What the grant is asked for.

        :param key: for which run.
        :param planned_end: when its TPU will be deleted at the latest.
        :param around: digests of the runs that end only after this one.
        """
        return Request(
            spec=self.spec,
            accelerator=self.accelerator,
            planned_end=planned_end,
            bucket_locations=self.bucket_locations,
            project_number=self.project_number,
            paid_reason=self.paid_reason,
            owner=key.digest,
            airflow=key.airflow,
            around=frozenset(around),
            below=self.below,
            rates=self.rates,
            price=self.price,
            uri_fields=self.uri_fields,
            names=self.names,
        )

    def permit(
        self, snapshot: ProjectSnapshot, record: RunRecord, now: dt.datetime, reserved: Reservations = NOTHING
    ) -> Permit:
        """Ask the grant.

        :param snapshot: what was alive at ``now``.
        :param reserved: what runs have taken although the snapshot cannot show it yet.
        :raises GrantError: with all reasons.
        :raises TransientError: the zone did not answer.
        """
        request = self.request(record.key, record.lease.expires_at, record.lease.around)
        return authorize(self.grant, request, snapshot.with_answer_of(self.spec.zone).inventory(), now, reserved)

    def reserve(
        self, store: ReservationStore, snapshot: ProjectSnapshot, record: RunRecord, now: dt.datetime
    ) -> Permit:
        """Ask the grant and take the chips from it, in one step that no other run can get in between.

        :param store: where every run writes what it takes.
        :param snapshot: what was alive at ``now``.
        :raises GrantError: with all reasons; nothing was taken.
        """
        wanted = Reservation.of(record.key, self.spec, self.accelerator.chips, record.lease.expires_at)
        return store.take(wanted, lambda reserved: self.permit(snapshot, record, now, reserved))

    def stamp(self, record: RunRecord, root: str = "") -> Stamp:
        """What marks the TPU of a lease's incarnation as ours, and ends it without us.

        :param record: of the run.
        :param root: ``gs://bucket/prefix`` below which it is.
        """
        ends_at, node = record.lease.expires_at, self.spec.node(record.node_id)
        # Of a slice the first worker alone gets the run, so the others could not tell whether it has arrived.
        startup = self.startup if self.accelerator.hosts == 1 else None
        return Stamp(
            node_id=record.node_id,
            labels=labels(record.key, replace(record.stamp, root=root)),
            ssh_keys=self.ssh_keys,
            request_id=str(uuid.uuid5(_NAMESPACE, f"{self.spec.project_id}/{record.node_id}/{record.lease.token}")),
            startup_script=startup.text(node.queued if self.spec.queued else node, ends_at) if startup else "",
            valid_until=first_of(ends_at, self.closes),
        )

    def opened(self, permit: Permit, record: RunRecord, now: dt.datetime) -> Opened:
        """The record of a lease's incarnation, which is about to be asked for."""
        spec = self.spec
        return Opened(
            node_id=record.node_id,
            run=record.key.digest,
            dag_id=record.key.dag_id,
            run_id=record.key.run_id,
            dag_run=record.key.dag_run,
            session=record.key.session,
            airflow=record.key.airflow,
            project=spec.project_id,
            zone=spec.zone,
            accelerator_type=spec.accelerator_type,
            chips=self.accelerator.chips,
            tier=spec.tier,
            provisioning=QUEUED_RESOURCE if spec.queued else NODE,
            external_ips=0 if spec.internal_ips else self.accelerator.hosts,
            allowance=permit.allowance_text,
            paid_reason=permit.paid_reason,
            requested_at=now,
            transfers=transfers(self.bucket_locations, self.below, spec.zone, self.artifacts_uri),
            term=GrantTerm(self.grant.begins_at, self.grant.ends_at, tuple(map(str, self.grant.allowances))),
            commit=record.commit,
        )
