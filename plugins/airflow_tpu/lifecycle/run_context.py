# SPDX-License-Identifier: Apache-2.0
"""What the verbs work on: one run, the clients that reach its TPU, and the stores that remember it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.clock import WALL, Clock
from airflow_tpu.clients.repository.login import read_git_login
from airflow_tpu.core.grant.alternatives import form_defaults, with_zones_of
from airflow_tpu.core.ledger.ledger_filter import LedgerFilter
from airflow_tpu.core.ledger.usage import Usage, fold
from airflow_tpu.core.request.form_fields import FROM_GRANT
from airflow_tpu.core.request.references.source_address import GitAddress
from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.request.run_dates import RunDates, with_dates
from airflow_tpu.core.run.job import RunRef, folder_of, name_on_vm
from airflow_tpu.core.tpu.resource_name import ResourceName, node_name
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.lifecycle.run_request import RunRequest
from airflow_tpu.lifecycle.source.home import Home, home_of
from airflow_tpu.lifecycle.source.repository import Repository
from airflow_tpu.lifecycle.source.script_secrets import read_secrets
from airflow_tpu.stores.grant_stores import Stores
from airflow_tpu.stores.grants import load_catalogue, load_grant, shared_root, store_root
from airflow_tpu.stores.models import ModelStore

if TYPE_CHECKING:
    from airflow_tpu.core.catalogue.catalogue import Catalogue
    from airflow_tpu.core.grant.grant import Grant
    from airflow_tpu.core.run.job import LastAttempt
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.source.pin import SourcePin
    from airflow_tpu.core.tpu.labels import RunKey
    from airflow_tpu.lifecycle.connections import Clients
    from airflow_tpu.lifecycle.source.home import DagBundle


class GrantContext:
    """A grant, and what reaches its project and its bucket.

    :param clients: Cloud TPU API, Cloud Storage, SSH.
    :param grant: what may be used for free; read when it is first needed if it is not given.
    :param clock: the time by which everything here goes.
    """

    def __init__(self, clients: Clients, grant: Grant | None = None, clock: Clock = WALL) -> None:
        self.clients = clients
        self.clock = clock
        self._grant = grant

    @cached_property
    def grant(self) -> Grant:
        """What may be used for free.

        :raises ConfigError: it cannot be read.
        """
        return self._grant or load_grant()

    @cached_property
    def catalogue(self) -> Catalogue:
        """Types, zones and prices."""
        return load_catalogue()

    @cached_property
    def stores(self) -> Stores:
        """What the grant's bucket remembers.

        :raises ConfigError: the grant, which names the bucket, cannot be read.
        """
        return Stores.below(self.clients.storage, store_root(self.grant), shared_root(self.grant), self.clock)


class RunContext(GrantContext):
    """One session, as one of its tasks sees it.

    :param key: which.
    :param conf: what was asked for, as rendered.
    :param dates: of the DAG run, which the form's texts may name.
    """

    def __init__(
        self,
        key: RunKey,
        conf: str | Mapping[str, Any],
        clients: Clients,
        grant: Grant | None = None,
        clock: Clock = WALL,
        dates: RunDates | None = None,
    ) -> None:
        super().__init__(clients, grant, clock)
        self.key = key
        self.training = ""
        self.dates = dates or RunDates()
        self.bundle: DagBundle | None = None
        self._conf = conf

    @cached_property
    def conf(self) -> RunConf:
        """What was asked for, checked."""
        return RunConf.parse(self.asked, self.offers)

    @cached_property
    def asked(self) -> Mapping[str, Any]:
        """The fields as given, with the dates that they name, and those that the grant fills."""
        return {**self.from_grant, **self._given}

    @cached_property
    def from_grant(self) -> Mapping[str, str]:
        """The fields that are left out: as they were when the run began, else as the grant has them now.

        Without a grant that can be read there are none: the end of a run does not need them.
        """
        missing = FROM_GRANT - self._given.keys()
        if not missing:
            return {}
        try:
            record = self.stores.runs.find(self.key)
            if record is not None and record.from_grant.keys() == missing:
                return record.from_grant
            return form_defaults(self._given, self.grant, self.offers)
        except ConfigError:
            return {}

    @cached_property
    def _given(self) -> Mapping[str, Any]:
        return with_dates(conf_mapping(self._conf), self.dates)

    @cached_property
    def offers(self) -> Catalogue:
        """The catalogue with the zones of the grant, if it can be read: the end of a run does not need it."""
        try:
            return with_zones_of(self.grant, self.catalogue)
        except ConfigError:
            return self.catalogue

    @cached_property
    def request(self) -> RunRequest:
        """What that means for the TPU."""
        return RunRequest(self.conf, self.grant, self.offers, self.clients)

    @cached_property
    def repository(self) -> Repository | None:
        """The git repository that the project is in, None if it is in none.

        :raises ConfigError: the connection with its login is missing, or another server's.
        """
        address, conn_id = self.conf.address, self.conf.source_conn_id
        if not isinstance(address, GitAddress):
            return None
        return Repository(address, read_git_login(conn_id, address) if conn_id else None)

    @cached_property
    def source_pin(self) -> SourcePin | None:
        """The commit that this run trains, found by the first of its tasks; None if the project is no repository.

        :raises SourceUnreachable: the server did not answer.
        :raises ConfigError: there is no such branch, tag or commit.
        """
        return self.repository.pin(self.stores.sources, self.key) if self.repository is not None else None

    @property
    def commit(self) -> str:
        """Digits of that commit, empty without one."""
        return self.source_pin.commit if self.source_pin is not None else ""

    @cached_property
    def secrets(self) -> Mapping[str, str]:
        """Variables of the script whose values Airflow keeps; read by each task that needs them, and never stored.

        :raises ConfigError: one is missing, or not for a script.
        """
        return read_secrets(self.conf.secrets)

    @property
    def revision(self) -> str:
        """Commit of the project, else what the form says of code that the script fetches by itself."""
        return self.commit or self.conf.revision

    @cached_property
    def home(self) -> Home:
        """The folder of projects that this run takes its own from."""
        return home_of(self.conf, self.bundle)

    @property
    def project_version(self) -> str:
        """Commit of the project, else the version of the DAG bundle that it is in; empty if it has neither."""
        return self.commit or self.home.version

    @property
    def code_version(self) -> str:
        """What the manifest of an attempt names; the version of a bundle says nothing of the project in it."""
        return self.revision or self.home.version

    @cached_property
    def models(self) -> ModelStore:
        """Versions of the model that the conf names.

        :raises ConfigError: it names none.
        """
        if not self.conf.model:
            raise ConfigError([Fault("model", "", "names no model to compete with")])
        return ModelStore(self.clients.storage, store_root(self.grant), self.conf.model)

    def of_training(self, training: str) -> RunContext:
        """The same session, as a task sees it that is about this training; without a name it is about none."""
        seen = copy(self)
        seen.training = training
        return seen

    def in_bundle(self, bundle: DagBundle | None) -> RunContext:
        """The same session, as a task sees it whose DAG file is in this bundle: its project may be there too."""
        seen = copy(self)
        seen.bundle = bundle
        return seen

    def attempt(self, record: RunRecord) -> LastAttempt:
        """The last attempt of this task's training."""
        return record.last_attempt(self.training)

    def attempt_ref(self, record: RunRecord) -> RunRef:
        """The name of that attempt on its worker."""
        return RunRef(name_on_vm(self.key.name, self.training), self.attempt(record).number)

    def attempt_node(self, record: RunRecord) -> ResourceName:
        """The node that it was started on."""
        return node_name(self.clients.tpu.endpoint.project_id, record.zone, self.attempt(record).node_id)

    @property
    def folder(self) -> str:
        """Where the artifacts and checkpoints of this task's training are, below those of the form."""
        return folder_of(self.key.name, self.training)

    def usage(self, now: dt.datetime, whole: bool = False) -> Usage:
        """What this session has used so far; the TPUs beside its own decide how much of that is covered.

        :param whole: all sessions of the DAG run, unless the key names one by name or index.
        """
        wanted = self.key.dag_run if whole and self.key.is_whole else self.key.digest
        return fold(self.stores.ledger.events(), self.catalogue, now, wanted=LedgerFilter(run=wanted))


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
