# SPDX-License-Identifier: Apache-2.0
"""Say whether the whole DAG run has failed, also when a person has said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_tpu.errors import TasksFailed
from airflow_tpu.operators.lease import CloudTPULeaseOperator
from airflow_tpu.operators.reporting import ReportingOperator, reported

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions._internal.abstractoperator import AbstractOperator

_BAD = frozenset({"failed", "upstream_failed"})


class CloudTPUVerdictOperator(ReportingOperator):
    """Fail if any task above has failed, at whatever distance; what was skipped is no failure.

    Airflow judges a DAG run by its last tasks. After a failed training the teardown and the report have succeeded, and
    in a run that a person has marked failed every task that was still to come is skipped: both would be a success. What
    that person has said is remembered at the lease, since no task need have failed. So each
    session (:func:`airflow_tpu.task_groups.tpu_session`) has this as its last task, below everything else. It makes
    itself a teardown without a setup, the one kind of task that Airflow 3.3 skips in no case.

    In a mapped task group each instance judges the tasks of its own instance, and what is above the group.

    :param retries: tries after the first, for a worker that dies; a failure of the run is not tried again.
    :raises TasksFailed: names the tasks that have failed, or says that a person has marked the DAG run failed.
    """

    ui_color = "#e8f0fe"
    consequence = ""

    def __init__(self, *, retries: int = 3, **kwargs: Any) -> None:
        super().__init__(retries=retries, **kwargs)
        self.as_teardown(on_failure_fail_dagrun=True)

    @reported
    def execute(self, context: Context) -> None:
        """Look at every task above, and for what a person has said of the whole run."""
        if self._marked_failed(context):
            raise TasksFailed("a person has marked the DAG run failed; what its trainings have saved is kept.")
        states = self._states(context)
        bad = [f"{name} ({state})" for name, state in sorted(states.items()) if state in _BAD]
        if bad:
            raise TasksFailed(f"the run has failed: {', '.join(bad)}. The log of each failed task says why.")
        self.log.info("none of the %d task(s) above has failed", len(states))

    def _marked_failed(self, context: Context) -> bool:
        """Whether a person has marked the DAG run failed, which every lease above remembers."""
        from airflow_tpu.clients.airflow_state import FAILED, MARKED_KEY

        instance, here = context["ti"], _mapped_group(self)
        leases = (one for one in self.get_flat_relatives(upstream=True) if isinstance(one, CloudTPULeaseOperator))
        for lease in leases:
            index = instance.map_index if _mapped_group(lease) == here else -1
            if instance.xcom_pull(task_ids=lease.task_id, key=MARKED_KEY, map_indexes=index) == FAILED:
                return True
        return False

    def _states(self, context: Context) -> dict[str, str | None]:
        """States of the tasks above; of those in the same mapped task group only those of the same index."""
        from airflow_tpu.clients.airflow_state import task_states

        instance, here = context["ti"], _mapped_group(self)
        above = {task.task_id: _mapped_group(task) for task in self.get_flat_relatives(upstream=True)}
        beside = sorted(name for name, group in above.items() if here and group == here)
        others = sorted(set(above) - set(beside))
        own = task_states(instance.dag_id, instance.run_id, beside, instance.map_index) if beside else {}
        return own | (task_states(instance.dag_id, instance.run_id, others) if others else {})


def _mapped_group(task: AbstractOperator) -> str | None:
    """Id of the mapped task group that a task is in, None if it is in none."""
    group = task.get_closest_mapped_task_group()
    return group.group_id if group is not None else None
