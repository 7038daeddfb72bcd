"""Everything a task of one run works with, put together once per execution."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients import airflow_state
from airflow_tpu.clients.ssh_login import public_key_line, read_login
from airflow_tpu.core.grant.alternatives import Alternative, alternatives
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.run.start_window import closes_at
from airflow_tpu.core.tpu.resource_name import ResourceName, node_name
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.lifecycle.ensure_tpu import Order
from airflow_tpu.lifecycle.reachability import Access
from airflow_tpu.stores.grants import amounts_elsewhere, bucket_locations, load_catalogue, load_grant, store_root
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.models import ModelStore
from airflow_tpu.stores.reservations import ReservationStore
from airflow_tpu.stores.runs import RunStore

if TYPE_CHECKING:
    from airflow_tpu.core.catalogue.catalogue import AcceleratorType, Catalogue
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.hooks.artifacts import ArtifactsHook
    from airflow_tpu.hooks.tpu import CloudTPUHook


@dataclass(frozen=True)
class Connections:
    """Which connections a task uses.

    :param gcp_conn_id: Cloud TPU API and Cloud Storage.
    :param ssh_conn_id: user and private key.
    :param impersonation_chain: service account to impersonate, empty for none.
    """

    gcp_conn_id: str
    ssh_conn_id: str
    impersonation_chain: str = ""


def conf_mapping(conf: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The rendered ``conf`` of a task, its fields unchecked.

    :raises ConfigError: it is no mapping.
    """
    try:
        data = json.loads(conf) if isinstance(conf, str) else conf
    except json.JSONDecodeError as error:
        raise ConfigError([Fault("conf", conf, f"is not JSON: {error}")]) from error
    if not isinstance(data, Mapping):
        raise ConfigError([Fault("conf", data, "is not a mapping")])
    return data


class Workbench:
    """Hooks, grant, stores and order of one run.

    :param key: whose run.
    :param connections: which connections to use.
    :param conf: what was asked for, as rendered.
    """

    def __init__(self, key: RunKey, connections: Connections, conf: str | Mapping[str, Any]) -> None:
        self.key = key
        self.connections = connections
        self._conf = conf

    @cached_property
    def conf(self) -> RunConf:
        """What was asked for, checked."""
        return RunConf.parse(conf_mapping(self._conf), self.catalogue)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Types, zones and prices."""
        return load_catalogue()

    @cached_property
    def grant(self) -> Grant:
        """What may be used for free."""
        return load_grant()

    @cached_property
    def tpu(self) -> CloudTPUHook:
        """Cloud TPU API."""
        from airflow_tpu.hooks.tpu import CloudTPUHook

        return CloudTPUHook(self.connections.gcp_conn_id, self.connections.impersonation_chain or None)

    @cached_property
    def storage(self) -> ArtifactsHook:
        """Cloud Storage."""
        from airflow_tpu.hooks.artifacts import ArtifactsHook

        return ArtifactsHook(self.connections.gcp_conn_id, self.connections.impersonation_chain or None)

    @cached_property
    def runs(self) -> RunStore:
        """Where the lease is kept."""
        return RunStore(self.storage, store_root(self.grant))

    @cached_property
    def ledger(self) -> LedgerStore:
        """Where incarnations are recorded."""
        return LedgerStore(self.storage, store_root(self.grant))

    @cached_property
    def reservations(self) -> ReservationStore:
        """What runs have taken from the grant."""
        return ReservationStore(self.storage, store_root(self.grant))

    @cached_property
    def models(self) -> ModelStore:
        """Versions of the model that the conf names.

        :raises ConfigError: it names none.
        """
        if not self.conf.model:
            raise ConfigError([Fault("model", "", "names no model to compete with")])
        return ModelStore(self.storage, store_root(self.grant), self.conf.model)

    @cached_property
    def access(self) -> Access:
        """Login and port of the TPU VMs."""
        connection = airflow_state.connection(self.connections.ssh_conn_id)
        return Access(read_login(connection), self.tpu.options)

    @property
    def accelerator(self) -> AcceleratorType:
        """The asked type in the catalogue."""
        return self.catalogue.types[self.conf.accelerator_type]

    @property
    def spec(self) -> TPUSpec:
        """The TPU that the form asks for."""
        return self.spec_of(Alternative.asked(self.conf))

    @cached_property
    def choices(self) -> tuple[Alternative, ...]:
        """Every TPU that would do, the one of the form first."""
        return alternatives(self.conf, self.grant, self.catalogue)

    def choice(self, record: RunRecord | None) -> Alternative:
        """Which TPU a run asks for now."""
        return (record.choice if record is not None else None) or Alternative.asked(self.conf)

    def spec_of(self, choice: Alternative) -> TPUSpec:
        """The TPU to ask for."""
        return TPUSpec(
            project_id=self.tpu.endpoint.project_id,
            zone=choice.zone,
            accelerator_type=choice.accelerator_type,
            runtime_version=choice.runtime_version,
            tier=choice.tier,
            queued=self.conf.queued,
            internal_ips=self.conf.internal_ips,
        )

    def accelerator_of(self, record: RunRecord) -> AcceleratorType:
        """The type that a run has, in the catalogue."""
        return self.catalogue.types[self.choice(record).accelerator_type]

    def attempt_node(self, record: RunRecord) -> ResourceName:
        """The node that the last attempt was started on."""
        return node_name(self.tpu.endpoint.project_id, record.zone, record.attempt_node)

    def order(self, record: RunRecord | None = None) -> Order:
        """What is to be created, with the location of every bucket that the run names.

        :param record: of a run that may ask for something else than the form does by now.
        """
        named = (self.conf.artifacts_uri, self.conf.script, self.conf.data_uri)
        uris = [uri for uri in named if uri.startswith("gs://")]
        choice = self.choice(record)
        spec, locations = self.spec_of(choice), bucket_locations(self.storage, uris)
        return Order(
            spec=spec,
            accelerator=self.catalogue.types[choice.accelerator_type],
            grant=self.grant,
            bucket_locations=locations,
            paid_reason=self.conf.allow_paid_reason,
            ssh_keys=public_key_line(self.access.login, self.connections.ssh_conn_id),
            project_number=self.storage.project_number(self.grant.bucket),
            below=amounts_elsewhere(self.storage, locations, spec.region),
            rates=self.catalogue.transfer,
            artifacts_uri=self.conf.artifacts_uri,
        )

    def usage(self, now: dt.datetime) -> Usage:
        """What this run has used so far, folded from its records in the ledger."""
        return fold(self.ledger.events(self.key), self.catalogue, now)

    def closes(self, record: RunRecord) -> dt.datetime | None:
        """When this run wants no first TPU any more, None if it waits until its deadline."""
        return closes_at(self.conf, record)

    def deadline(self, started: dt.datetime) -> dt.datetime:
        """When everything of this run ends."""
        return started + dt.timedelta(hours=self.conf.deadline_hours)
