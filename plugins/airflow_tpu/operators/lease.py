"""Take the run's lease and its chips: a setup task that touches no TPU, so that its teardown runs in any case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_tpu.consequences import NOTHING_CREATED, stated
from airflow_tpu.core.run.run_record import Holder
from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPULeaseOperator(CloudTPUBaseOperator):
    """Take the lease of this DAG run; a new token fences older attempts off.

    With the create itself as the setup, a create that fails half-way would never see its teardown. The chips are
    taken from the grant here, so that of two runs that ask in the same second only one gets the last of them.

    :return: name of the run and when its lease ends.
    :raises LeaseHeld: another DAG run of the same ids has it.
    """

    @stated(NOTHING_CREATED)
    def execute(self, context: Context) -> dict[str, Any]:
        """Write the lease object, then the reservation."""
        from airflow_tpu.lifecycle.lease import take_lease

        record = take_lease(self.run_context(context), _holder(context))
        return {"run": record.key.name, "expires_at": record.lease.expires_at.isoformat()}


def _holder(context: Context) -> Holder:
    run = context["dag_run"]
    return Holder(run.start_date, run.clear_number or 0)
