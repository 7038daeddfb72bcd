# SPDX-License-Identifier: Apache-2.0
"""Many processes that take from one grant in the same moment, as the tasks of many DAG runs do.

Usage: ``python -m tests.airflow_tpu.concurrent_requests COUNT SPEC...``, each SPEC the JSON of a
:class:`airflow_tpu.core.tpu.spec.TPUSpec`; the connection ``google_cloud_default`` leads to the bucket. Every process
asks for each of them once, by a run of its own. Prints, for each SPEC, the digests of the runs that got one and the
refusals of the others, as JSON.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
import sys
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import Any

from airflow_tpu.core import json_form
from airflow_tpu.core.run.run_record import Lease, RunRecord
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.core.tpu.spec import TPUSpec
from airflow_tpu.errors import RowInUse
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.lifecycle.order import Order
from airflow_tpu.lifecycle.project_snapshot import ProjectSnapshot
from airflow_tpu.stores.grants import load_catalogue, load_grant, shared_root
from airflow_tpu.stores.reservations import ReservationStore
from tests.airflow_tpu.identities import AIRFLOW

NOBODY = ProjectSnapshot((), (), ())
"""What the API shows: nobody's TPU yet, so that only the reservations tell one run of another."""

Answer = tuple[str, str]
"""The digest of a run and, empty if it got what it asked for, the refusal."""


class Requests:
    """What every process shares.

    :param start: where all of them wait for one another.
    :param orders: what each asks for.
    """

    def __init__(self, start: Barrier, orders: list[Order]) -> None:
        self._start, self._orders = start, orders

    def ask(self, number: int) -> list[Answer]:
        """Ask for everything, one after another, through a connection of this process alone."""
        mine = store()
        self._start.wait(480)
        return [take(mine, order, f"run {number} of {order.spec}") for order in self._orders]


def store() -> ReservationStore:
    """The store as one process has it: a connection of its own; it tries again at once."""
    return ReservationStore(ArtifactsHook(), shared_root(load_grant()), pause=0.05)


def take(mine: ReservationStore, order: Order, run: str) -> Answer:
    """Do what the lease task of a run does."""
    now = dt.datetime.now(dt.UTC)
    record = RunRecord(RunKey(AIRFLOW, "tpu_train", run), Lease("token", now + dt.timedelta(hours=1)), order.spec.zone)
    try:
        order.reserve(mine, NOBODY, record, now)
    except RowInUse as refusal:
        return record.key.digest, str(refusal)
    return record.key.digest, ""


def order_of(spec: TPUSpec) -> Order:
    """What one run asks for."""
    return Order(spec, load_catalogue().types[spec.accelerator_type], load_grant(), {}, "", "trainer:ssh-ed25519 AAAA")


_shared: list[Requests] = []  # what the forked processes inherit


def ask(number: int) -> list[Answer]:
    """In one of the processes: do its part."""
    return _shared[0].ask(number)


def main(count: int, specs: list[dict[str, Any]]) -> None:
    """Fork ``count`` processes, let them start together, print the outcomes."""
    context = get_context("fork")  # this process has no thread
    asked = [order_of(json_form.from_json(TPUSpec, spec)) for spec in specs]
    _shared.append(Requests(context.Barrier(count), asked))
    store().read()  # imports Google's client, once for all
    gc.freeze()
    with context.Pool(count) as pool:
        answers = pool.map(ask, range(count), chunksize=1)  # nobody gets two: each waits for all the others
    sys.stdout.write(json.dumps(list(zip(*answers, strict=True))))


if __name__ == "__main__":
    main(int(sys.argv[1]), [json.loads(spec) for spec in sys.argv[2:]])
