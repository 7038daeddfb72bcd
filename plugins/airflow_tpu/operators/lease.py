"""Take the run's lease and its chips: a setup task that touches no TPU, so that its teardown runs in any case."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_tpu import settings
from airflow_tpu.consequences import NOTHING_CREATED, stated
from airflow_tpu.core.run.run_record import Holder
from airflow_tpu.errors import GrantError
from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.grant.alternatives import Alternative
    from airflow_tpu.core.grant.authorize import Permit
    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.lifecycle.project_snapshot import Census
    from airflow_tpu.lifecycle.run_context import Workbench


class CloudTPULeaseOperator(CloudTPUBaseOperator):
    """Take the lease of this DAG run, or take it again with a new token that fences older attempts off.

    With the create itself as the setup, a create that fails half-way would never see its teardown. The chips are
    taken from the grant here, so that of two runs that ask in the same second only one gets the last of them.

    :return: name of the run and when its lease ends.
    :raises LeaseHeld: a DAG run of the same ids in another Airflow that shares the bucket has it.
    """

    @stated(NOTHING_CREATED)
    def execute(self, context: Context) -> dict[str, Any]:
        """Write the lease object, then the reservation."""
        from airflow_tpu.lifecycle.project_snapshot import take_census

        bench = self.bench(context)
        # Whatever can fail without a trace comes before the lease.
        order, now = bench.order(), dt.datetime.now(dt.UTC)
        census = bench.tpu.run(take_census)
        holder = _holder(context)
        record = bench.runs.acquire(bench.key, bench.conf.zone, bench.deadline(holder.started_at or now), holder)
        self.log.info("lease of %s until %s: %s", record.key.name, record.lease.expires_at, bench.runs.uri(bench.key))
        try:
            if record.choice is None:
                permit = order.reserve(bench.reservations, census, record, now)
            else:
                permit = self._reserve_again(bench, census, record)
            self.log.info("taken from the grant: %s", permit)
        except GrantError:
            if record.incarnation == 0:  # no TPU was ever asked for under this lease, so nobody needs it
                bench.runs.release(bench.key)
            raise
        return {"run": record.key.name, "expires_at": record.lease.expires_at.isoformat()}

    def _reserve_again(self, bench: Workbench, census: Census, record: RunRecord) -> Permit:
        """Reserve for a run that has walked before: what it asked for last, or else the first of its choices with room.

        What a run walks to may have been taken by others by the time a person clears it.

        :raises GrantError: none has room; what is said is about the form's.
        """
        now, refused = dt.datetime.now(dt.UTC), list[GrantError]()
        again = [] if census.living(record.key) is not None else [_anew(record, choice) for choice in bench.choices]
        for wanted in (record, *again):
            try:
                permit = bench.order(wanted).reserve(bench.reservations, census, wanted, now)
            except GrantError as error:
                self.log.warning("no room for %s: %s", bench.choice(wanted), error)
                refused.append(error)
                continue
            if wanted is not record:
                bench.runs.update(record, partial(_anew, choice=bench.choice(wanted)))
                self.log.warning("the search for a TPU begins anew, with %s", bench.choice(wanted))
            return permit
        raise refused[min(1, len(again))]


def _anew(record: RunRecord, choice: Alternative) -> RunRecord:
    return replace(record, choice=choice, hunt=None)


def _holder(context: Context) -> Holder:
    run = context["dag_run"]
    return Holder(run.start_date, run.clear_number or 0, settings.airflow_address())
