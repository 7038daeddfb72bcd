# SPDX-License-Identifier: Apache-2.0
"""Take the run's lease and its chips: a setup task that touches no TPU, so that its teardown runs in any case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_tpu.consequences import NOTHING_CREATED
from airflow_tpu.core.run.run_record import Holder
from airflow_tpu.errors import ConfigError, Fault
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.reporting import reported

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.tpu.labels import RunKey


class CloudTPULeaseOperator(CloudTPUBaseOperator):
    """Take the lease of this DAG run; a new token fences older attempts off.

    With the create itself as the setup, a create that fails half-way would never see its teardown. The chips are
    taken from the grant here, so that of two runs that ask in the same second only one gets the last of them.

    :return: name of the run and when its lease ends.
    :raises LeaseHeld: another DAG run of the same ids has it.
    """

    consequence = NOTHING_CREATED
    session_ended = False
    """Whether the block of the session's tasks is complete; they lie between this task and the delete."""

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """Write the lease object, then the reservation."""
        from airflow_tpu.lifecycle.lease import take_lease

        run = self.run_context(context)
        record = take_lease(run, _holder(context, self._around(run.key)))
        return {"run": record.key.name, "expires_at": record.lease.expires_at.isoformat()}

    def _around(self, key: RunKey) -> tuple[str, ...]:
        """Digests of the sessions of this DAG run inside of which this one is: they end only after it."""
        if not self.has_dag():  # type: ignore[no-untyped-call]  # Airflow's own
            return ()
        setups = (task for task in self.get_upstreams_only_setups() if isinstance(task, CloudTPULeaseOperator))
        keys = (replace(key, session=task.session, map_index=self._index_of(task, key)) for task in setups)
        return tuple(sorted({one.digest for one in keys} - {key.digest}))

    def _index_of(self, task: CloudTPULeaseOperator, key: RunKey) -> int:
        """Map index of a session around: that of this one if they are in the same mapped group."""
        group = task.get_closest_mapped_task_group()
        return key.map_index if group is not None and group is self.get_closest_mapped_task_group() else -1


def check_session_is_open(task: CloudTPUBaseOperator) -> None:
    """Refuse a task that is defined after its session: nothing would make it wait for the TPU, nor the TPU for it.

    :raises ConfigError: names the task and what to do.
    """
    if not task.has_dag():  # type: ignore[no-untyped-call]  # Airflow's own
        return
    leases = (one for one in task.dag.tasks if isinstance(one, CloudTPULeaseOperator))
    if any(lease.session == task.session and lease.session_ended for lease in leases):
        problem = "is defined after its session has ended: move it into the with block of its tpu_session"
        subject = f"the session {task.session}" if task.session else "the session"
        raise ConfigError([Fault("session", task.task_id, problem)], subject)


def _holder(context: Context, around: tuple[str, ...]) -> Holder:
    run = context["dag_run"]
    return Holder(run.start_date, run.clear_number or 0, around)
