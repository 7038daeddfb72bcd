# SPDX-License-Identifier: Apache-2.0
"""Keep the record of each run: its lease is taken, renewed and released under generation preconditions."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.run.expiry import LeaseState
from airflow_tpu.core.run.run_record import RUN_RECORD_FORM, Holder, Lease, RunRecord
from airflow_tpu.core.tpu.identity import VARIABLE
from airflow_tpu.core.tpu.labels import DIGEST_LENGTH
from airflow_tpu.errors import DamagedObject, LeaseHeld, LeaseLost
from airflow_tpu.stores.store import Contents, Store

if TYPE_CHECKING:
    from airflow_tpu.core.tpu.labels import RunKey

_FOREVER = dt.datetime.max.replace(tzinfo=dt.UTC)


@dataclass(frozen=True)
class RunStore(Store):
    """Run records below ``gs://bucket/prefix/leases/``."""

    def uri(self, key: RunKey) -> str:
        """Where the record of a run is."""
        return f"{self.root}/leases/{key.name}.json"

    def acquire(
        self, key: RunKey, zone: str, expires_at: dt.datetime, holder: Holder | None = None, commit: str = ""
    ) -> RunRecord:
        """Take the lease, or take it again with a new token: older attempts are fenced off from now on.

        :param holder: which DAG run takes it.
        :param commit: what the run trains.
        :raises LeaseHeld: another DAG run of the same ids has it.
        :raises TransientError: too many others wrote the object at the same time.
        """
        token = uuid.uuid4().hex[:16]

        def taken(current: RunRecord | None) -> RunRecord:
            if current is None:
                return RunRecord(key, Lease(token, expires_at, holder), zone, commit=commit)
            if current.lease.is_held_against(holder, self.clock.now()):
                raise LeaseHeld(self._held(current))
            return current.renewed(token, expires_at, holder, commit)

        return self.change(self.uri(key), RUN_RECORD_FORM, taken)

    def _held(self, record: RunRecord) -> str:
        key, lease = record.key, record.lease
        return (
            f"{key.dag_id} {key.run_id} is running already: {lease.holder} holds its lease until "
            f"{lease.expires_at:%Y-%m-%d %H:%M} UTC. Wait until that run is over, or give this "
            f"one an id of its own. If it was deleted, delete {self.uri(key)} and clear this task: the run takes its "
            "TPU over. If it belongs to the Airflow of whose database this one is a copy, delete the Variable "
            f"{VARIABLE} here: this Airflow then gets an identity of its own."
        )

    def read(self, key: RunKey) -> RunRecord:
        """Read the record.

        :raises LeaseLost: there is none: the run has ended, or its setup task did not run.
        :raises UnknownVersion: another release has written it.
        """
        found = self.find(key)
        if found is None:
            raise LeaseLost(f"no lease {self.uri(key)}: clear this task together with its setup task 'lease'.")
        return found

    def find(self, key: RunKey) -> RunRecord | None:
        """Read the record, None when the run has ended or not begun.

        :raises UnknownVersion: another release has written it.
        """
        return self.load(self.uri(key), RUN_RECORD_FORM)

    def confirm(self, record: RunRecord) -> RunRecord:
        """Read the record, provided that the lease is still ours.

        :raises LeaseLost: a newer attempt has taken the lease over, or it is gone.
        """
        return self._ours(record, self.find(record.key))

    def of_dag_run(self, key: RunKey) -> Contents[RunRecord]:
        """The records that a DAG run has: one for each session, and for each mapped instance of one.

        :param key: of any of them.
        :return: those that can be read; of the others, that they are of the same DAG by their names.
        """
        found = self.contents(self.names(f"leases/{key.family}-"), self._at_its_place)
        mine = [record for record in found.values if record.key.dag_run == key.dag_run]
        return Contents(mine, {name: error for name, error in found.unknown.items() if key.has_sibling(_name(name))})

    def all(self) -> list[RunRecord]:
        """Every record that this release reads."""
        return list(self.listed().values)

    def listed(self) -> Contents[RunRecord]:
        """Every record, those that cannot be read by their names (see :func:`left_alone`)."""
        return self.contents(self.names("leases/"), self._at_its_place)

    def _at_its_place(self, data: object, name: str) -> RunRecord:
        """Read a record; a copy of one, which a person has made, says nothing of the run as it is now."""
        record = RUN_RECORD_FORM.from_json(data, name)
        if not self.uri(record.key).endswith(f"/{name}"):
            raise DamagedObject(f"the run record {name} is damaged (it is a copy of {record.key.name}.json)")
        return record

    def update(self, record: RunRecord, change: Callable[[RunRecord], RunRecord]) -> RunRecord:
        """Change the record, provided that the lease is still ours.

        :param record: the record as this attempt knows it.
        :param change: from the current record to the new one.
        :raises LeaseLost: a newer attempt has taken the lease over, or it is gone.
        """

        def changed(current: RunRecord | None) -> RunRecord:
            return change(self._ours(record, current))

        return self.change(self.uri(record.key), RUN_RECORD_FORM, changed)

    def amend(self, key: RunKey, change: Callable[[RunRecord], RunRecord]) -> RunRecord | None:
        """Add a fact to the record, whichever attempt holds the lease: the end of a TPU does not depend on that.

        :return: the record with it, None when there is none.
        :raises TransientError: too many others wrote the object at the same time.
        """
        return self.change(self.uri(key), RUN_RECORD_FORM, lambda current: None if current is None else change(current))

    def release(self, key: RunKey) -> None:
        """Give the lease back; releasing twice succeeds."""
        self.hook.remove(self.uri(key))

    def forget(self, key: RunKey, token: str) -> bool:
        """Remove the record of a run that is over, unless its lease was taken again.

        :return: whether it was still that one.
        """
        found = self._at_generation(self.uri(key), RUN_RECORD_FORM)
        current, generation = found
        if current is None or current.lease.token != token:
            return False
        self.hook.remove(self.uri(key), generation)
        return True

    def _ours(self, record: RunRecord, current: RunRecord | None) -> RunRecord:
        if current is None or current.lease.token != record.lease.token:
            raise LeaseLost(f"{self.uri(record.key)} belongs to a newer attempt; this one stops and touches nothing")
        return current


def _name(path: str) -> str:
    """Name of the session whose record is at a path."""
    return path.rpartition("/")[2].removesuffix(".json")


def left_alone(unknown: Iterable[str]) -> dict[str, LeaseState]:
    """State of each run whose record cannot be read: its TPU, reservation and ledger records stay.

    :param unknown: names of such records.
    :return: by digest of the run.
    """
    digests = [_name(name)[-DIGEST_LENGTH:] for name in unknown]
    return {digest: LeaseState(digest, _FOREVER, run_state=None) for digest in digests}
