# SPDX-License-Identifier: Apache-2.0
"""The stores that the life of a TPU goes through, in one bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.clients.clock import WALL, Clock
from airflow_tpu.stores.airflows import AirflowStore
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.reservations import ReservationStore
from airflow_tpu.stores.runs import RunStore
from airflow_tpu.stores.sources import SourceStore

if TYPE_CHECKING:
    from airflow_tpu.hooks.artifacts import ArtifactsHook


@dataclass(frozen=True)
class Stores:
    """What a grant's bucket remembers of all runs.

    :param runs: a record for each run, with its lease.
    :param ledger: what was used.
    :param reservations: what runs have taken from the grant, whatever their prefix.
    :param airflows: the Airflows that use the bucket.
    :param sources: the commit that each run trains.
    """

    runs: RunStore
    ledger: LedgerStore
    reservations: ReservationStore
    airflows: AirflowStore
    sources: SourceStore

    @classmethod
    def below(cls, storage: ArtifactsHook, root: str, shared: str, clock: Clock = WALL) -> Stores:
        """The stores of a grant.

        :param storage: Cloud Storage.
        :param root: ``gs://bucket/prefix``, for what belongs to one prefix.
        :param shared: what all prefixes of the bucket share (:func:`airflow_tpu.stores.grants.shared_root`).
        :param clock: where the stores take the time from.
        """
        return cls(
            runs=RunStore(storage, root, clock=clock),
            ledger=LedgerStore(storage, root, clock=clock),
            reservations=ReservationStore(storage, shared, clock=clock),
            airflows=AirflowStore(storage, shared, clock=clock),
            sources=SourceStore(storage, root, clock=clock),
        )
