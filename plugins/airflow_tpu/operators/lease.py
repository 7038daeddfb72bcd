"""Take the run's lease: a setup task that touches no TPU, so that its teardown runs whatever happens later."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPULeaseOperator(CloudTPUBaseOperator):
    """Take the lease of this DAG run, or take it again with a new token that fences older attempts off.

    With the create itself as the setup, a create that fails half-way would never see its teardown.

    :return: name of the run and when its lease ends.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the lease object."""
        bench = self.bench(context)
        started = context["dag_run"].start_date or dt.datetime.now(dt.UTC)
        lease = bench.leases.acquire(bench.key, bench.conf.zone, bench.deadline(started))
        self.log.info("lease of %s until %s: %s", lease.key.name, lease.expires_at, bench.leases.uri(bench.key))
        return {"run": lease.key.name, "expires_at": lease.expires_at.isoformat()}
