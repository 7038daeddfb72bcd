"""Keep the record of each run: its lease is taken, renewed and released under generation preconditions."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.core.run.run_record import Holder, Lease, RunRecord
from airflow_tpu.errors import LeaseHeld, LeaseLost, TransientError
from airflow_tpu.stores.store import Store

if TYPE_CHECKING:
    from airflow_tpu.core.tpu.labels import RunKey

_RACES = 5
"""How often a lost race for the object is tried again before it is reported."""


@dataclass(frozen=True)
class RunStore(Store):
    """Run records below ``gs://bucket/prefix/leases/``."""

    def uri(self, key: RunKey) -> str:
        """Where the record of a run is."""
        return f"{self.root}/leases/{key.name}.json"

    def acquire(self, key: RunKey, zone: str, expires_at: dt.datetime, holder: Holder | None = None) -> RunRecord:
        """Take the lease, or take it again with a new token: older attempts are fenced off from now on.

        :param holder: which DAG run takes it.
        :raises LeaseHeld: another DAG run of the same ids, in another Airflow, has it.
        :raises TransientError: too many others wrote the object at the same time.
        """
        token = uuid.uuid4().hex[:16]
        for _ in range(_RACES):
            found = self.hook.read_json(self.uri(key))
            record = RunRecord(key, Lease(token, expires_at, holder), zone)
            if found is not None:
                current = RunRecord.from_json(found.data)
                if current.lease.is_held_against(holder, self.clock.now()):
                    raise LeaseHeld(self._held(current))
                record = current.renewed(token, expires_at, holder)
            if self.hook.write_json(self.uri(key), record.to_json(), found.generation if found else 0) is not None:
                return record
        raise TransientError(f"the lease {self.uri(key)} is being written by others")

    def _held(self, record: RunRecord) -> str:
        key, lease = record.key, record.lease
        return (
            f"{key.dag_id} {key.run_id} is running already: {lease.holder} holds its lease until "
            f"{lease.expires_at:%Y-%m-%d %H:%M} UTC. Wait until that run is over, or give this "
            f"one an id of its own. If its Airflow no longer exists, delete {self.uri(key)} and clear this task: the "
            "run takes its TPU over."
        )

    def read(self, key: RunKey) -> RunRecord:
        """The record as it is now.

        :raises LeaseLost: there is none: the run has ended, or its setup task did not run.
        """
        found = self.find(key)
        if found is None:
            raise LeaseLost(f"no lease {self.uri(key)}: clear this task together with its setup task 'lease'.")
        return found

    def find(self, key: RunKey) -> RunRecord | None:
        """The record as it is now, None when the run has ended or not begun."""
        found = self.hook.read_json(self.uri(key))
        return RunRecord.from_json(found.data) if found is not None else None

    def confirm(self, record: RunRecord) -> RunRecord:
        """The record as it is now, provided that its token is still ours.

        :raises LeaseLost: a newer attempt has taken the lease over, or it is gone.
        """
        return self._ours(record, self.find(record.key))

    def all(self) -> list[RunRecord]:
        """Every record there is."""
        return [RunRecord.from_json(data) for data in self.documents(self.names("leases/"))]

    def update(self, record: RunRecord, change: Callable[[RunRecord], RunRecord]) -> RunRecord:
        """Change the lease, provided that its token is still ours.

        :param record: the lease as this attempt knows it.
        :param change: from the current lease to the new one.
        :raises LeaseLost: a newer attempt has taken the lease over, or it is gone.
        """
        for _ in range(_RACES):
            found = self.hook.read_json(self.uri(record.key))
            changed = change(self._ours(record, RunRecord.from_json(found.data) if found else None))
            generation = found.generation if found else 0
            if self.hook.write_json(self.uri(record.key), changed.to_json(), generation) is not None:
                return changed
        raise TransientError(f"the lease {self.uri(record.key)} is being written by others")

    def amend(self, key: RunKey, change: Callable[[RunRecord], RunRecord]) -> RunRecord | None:
        """Add a fact to the lease, whoever holds it: what has become of a TPU does not depend on that.

        :return: the lease with it, None when there is none.
        :raises TransientError: too many others wrote the object at the same time.
        """
        for _ in range(_RACES):
            found = self.hook.read_json(self.uri(key))
            if found is None:
                return None
            current = RunRecord.from_json(found.data)
            changed = change(current)
            if changed == current:
                return current
            if self.hook.write_json(self.uri(key), changed.to_json(), found.generation) is not None:
                return changed
        raise TransientError(f"the lease {self.uri(key)} is being written by others")

    def release(self, key: RunKey) -> None:
        """Give the lease back; releasing twice succeeds."""
        self.hook.remove(self.uri(key))

    def forget(self, key: RunKey, token: str) -> bool:
        """Remove the lease of a run that is over, unless somebody has taken it again.

        :return: whether it was still that one.
        """
        found = self.hook.read_json(self.uri(key))
        if found is None or RunRecord.from_json(found.data).lease.token != token:
            return False
        self.hook.remove(self.uri(key), found.generation)
        return True

    def _ours(self, record: RunRecord, current: RunRecord | None) -> RunRecord:
        if current is None or current.lease.token != record.lease.token:
            raise LeaseLost(f"{self.uri(record.key)} belongs to a newer attempt; this one stops and touches nothing")
        return current
