# SPDX-License-Identifier: Apache-2.0
"""What a run asks for: the TPU of its form, the others that would do, the order of one, and until when it is wanted."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.clients.ssh_login import public_key_line
from airflow_tpu.core.grant.alternatives import Alternative, alternatives
from airflow_tpu.core.run.start_window import closes_at
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.lifecycle.order import Order
from airflow_tpu.stores.airflows import AirflowStore
from airflow_tpu.stores.grants import amounts_elsewhere, bucket_locations, shared_root, store_root
from airflow_tpu.stores.models import ModelStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.request.run_conf import RunConf
    from airflow_tpu.core.request.storage_uris import NamedURI
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.identity import KnownAirflow
    from airflow_tpu.lifecycle.connections import Clients

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunRequest:
    """What a form, a grant and the catalogue say of a run's TPU.

    :param conf: what was asked for, checked.
    :param grant: what may be used for free.
    :param catalogue: types, zones and prices.
    :param clients: project, buckets and key of an order.
    """

    conf: RunConf
    grant: Grant
    catalogue: Catalogue
    clients: Clients

    @property
    def spec(self) -> TPUSpec:
        """The TPU that the form asks for."""
        return self.spec_of(Alternative.asked(self.conf))

    @property
    def accelerator(self) -> AcceleratorType:
        """The asked type in the catalogue."""
        return self.catalogue.types[self.conf.accelerator_type]

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Every TPU that would do, the one of the form first."""
        return alternatives(self.conf, self.grant, self.catalogue)

    def alternative(self, record: RunRecord | None) -> Alternative:
        """Which TPU a run asks for now."""
        return (record.alternative if record is not None else None) or Alternative.asked(self.conf)

    def accelerator_of(self, record: RunRecord) -> AcceleratorType:
        """The type that a run has, in the catalogue."""
        return self.catalogue.types[self.alternative(record).accelerator_type]

    @cached_property
    def uri_fields(self) -> dict[str, str]:
        """Every ``gs://`` URI between which and the TPU data moves, with the field of the form that it stands in.

        The champion that a run is to beat is read too.
        """
        fields = {named.uri: named.field for named in reversed(self.conf.named_uris)}
        found = {uri: fields[uri] for uri in (self.conf.artifacts_uri, *self.conf.inputs)}
        if self.conf.model:
            champion = ModelStore(self.clients.storage, store_root(self.grant), self.conf.model).champion()
            found.update({champion.artifacts_uri: "model"} if champion else {})
        return found

    def spec_of(self, alternative: Alternative) -> TPUSpec:
        """The TPU to ask for."""
        return TPUSpec(
            project_id=self.clients.tpu.endpoint.project_id,
            zone=alternative.zone,
            accelerator_type=alternative.accelerator_type,
            runtime_version=alternative.runtime_version,
            tier=alternative.tier,
            queued=self.conf.queued,
            internal_ips=self.conf.internal_ips,
            network=self.conf.network,
            subnetwork=self.conf.subnetwork,
            service_account=self.conf.service_account,
        )

    def order(self, record: RunRecord | None = None, more: Iterable[NamedURI] = ()) -> Order:
        """What is to be created, with the location of every bucket that the run names.

        :param record: of a run that may have come to ask for another TPU than the form does.
        :param more: URIs beside those of the form.
        """
        storage, alternative = self.clients.storage, self.alternative(record)
        fields = {**{named.uri: named.field for named in more}, **self.uri_fields}
        locations = bucket_locations(storage, fields)
        spec = self.spec_of(alternative)
        return Order(
            spec=spec,
            accelerator=self.catalogue.types[alternative.accelerator_type],
            grant=self.grant,
            bucket_locations=locations,
            paid_reason=self.conf.allow_paid_reason,
            ssh_keys=public_key_line(self.clients.access.login),
            project_number=storage.facts.project_number(self.grant.bucket),
            below=amounts_elsewhere(storage, locations, spec.region),
            rates=self.catalogue.transfer,
            artifacts_uri=self.conf.artifacts_uri,
            price=self.catalogue.price(spec.accelerator_type, spec.zone, spec.tier),
            closes=self.closes(record) if record is not None else None,
            uri_fields=fields,
            names=self.names,
        )

    def names(self) -> Mapping[str, KnownAirflow]:
        """What the bucket knows of the Airflows that use it; without an answer a refusal names their identities."""
        try:
            return AirflowStore(self.clients.storage, shared_root(self.grant)).known()
        except cloud_failures() as error:
            log.warning("the names of other Airflows cannot be read: %s", error)
            return {}

    def closes(self, record: RunRecord) -> dt.datetime | None:
        """When this run no longer wants a first TPU; None if it waits until its deadline."""
        return closes_at(self.conf, record)

    def deadline(self, started: dt.datetime) -> dt.datetime:
        """When everything of this run ends."""
        return started + dt.timedelta(hours=self.conf.deadline_hours)
