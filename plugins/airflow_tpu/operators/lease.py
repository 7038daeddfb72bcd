"""Take the run's lease and its chips: a setup task that touches no TPU, so that its teardown runs in any case."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from airflow_tpu.errors import GrantError
from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPULeaseOperator(CloudTPUBaseOperator):
    """Take the lease of this DAG run, or take it again with a new token that fences older attempts off.

    With the create itself as the setup, a create that fails half-way would never see its teardown. The chips are
    taken from the grant here, so that of two runs that ask in the same second only one gets the last of them.

    :return: name of the run and when its lease ends.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the lease object, then the reservation."""
        from airflow_tpu.hooks.census import take_census

        bench = self.bench(context)
        # Whatever can fail without a trace comes before the lease.
        order, now = bench.order(), dt.datetime.now(dt.UTC)
        census = bench.tpu.run(take_census)
        started = context["dag_run"].start_date or dt.datetime.now(dt.UTC)
        lease = bench.leases.acquire(bench.key, bench.conf.zone, bench.deadline(started))
        self.log.info("lease of %s until %s: %s", lease.key.name, lease.expires_at, bench.leases.uri(bench.key))
        try:
            self.log.info("taken from the grant: %s", order.reserve(bench.reservations, census, lease, now))
        except GrantError:
            if lease.incarnation == 0:  # no TPU was ever asked for under this lease, so nobody needs it
                bench.leases.release(bench.key)
            raise
        return {"run": lease.key.name, "expires_at": lease.expires_at.isoformat()}
