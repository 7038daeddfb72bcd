"""Take the run's lease and its chips: a setup task that touches no TPU, so that its teardown runs in any case."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from airflow_tpu import settings
from airflow_tpu.core.lease import Holder
from airflow_tpu.errors import GrantError
from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPULeaseOperator(CloudTPUBaseOperator):
    """Take the lease of this DAG run, or take it again with a new token that fences older attempts off.

    With the create itself as the setup, a create that fails half-way would never see its teardown. The chips are
    taken from the grant here, so that of two runs that ask in the same second only one gets the last of them.

    :return: name of the run and when its lease ends.
    :raises LeaseHeld: a DAG run of the same ids in another Airflow that shares the bucket has it.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the lease object, then the reservation."""
        from airflow_tpu.hooks.census import take_census

        bench = self.bench(context)
        # Whatever can fail without a trace comes before the lease.
        order, now = bench.order(), dt.datetime.now(dt.UTC)
        census = bench.tpu.run(take_census)
        holder = _holder(context)
        lease = bench.leases.acquire(bench.key, bench.conf.zone, bench.deadline(holder.started_at or now), holder)
        if lease.choice is not None:
            order = bench.order(lease)
        self.log.info("lease of %s until %s: %s", lease.key.name, lease.expires_at, bench.leases.uri(bench.key))
        try:
            self.log.info("taken from the grant: %s", order.reserve(bench.reservations, census, lease, now))
        except GrantError:
            if lease.incarnation == 0:  # no TPU was ever asked for under this lease, so nobody needs it
                bench.leases.release(bench.key)
            raise
        return {"run": lease.key.name, "expires_at": lease.expires_at.isoformat()}


def _holder(context: Context) -> Holder:
    run = context["dag_run"]
    return Holder(run.start_date, run.clear_number or 0, settings.airflow_address())
