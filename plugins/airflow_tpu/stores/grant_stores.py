"""The stores that the life of a TPU goes through, all below one prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_tpu.clients.clock import WALL, Clock
from airflow_tpu.stores.ledger import LedgerStore
from airflow_tpu.stores.reservations import ReservationStore
from airflow_tpu.stores.runs import RunStore

if TYPE_CHECKING:
    from airflow_tpu.hooks.artifacts import ArtifactsHook


@dataclass(frozen=True)
class Stores:
    """What a grant's bucket remembers of all runs.

    :param runs: a record for each run, with its lease.
    :param ledger: what was used.
    :param reservations: what runs have taken from the grant.
    """

    runs: RunStore
    ledger: LedgerStore
    reservations: ReservationStore

    @classmethod
    def below(cls, storage: ArtifactsHook, root: str, clock: Clock = WALL) -> Stores:
        """The stores below ``gs://bucket/prefix``."""
        return cls(
            runs=RunStore(storage, root, clock=clock),
            ledger=LedgerStore(storage, root, clock=clock),
            reservations=ReservationStore(storage, root, clock=clock),
        )
