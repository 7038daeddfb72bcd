"""Say whether the whole DAG run has failed, also when a person has said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_tpu.operators.task_doc import task_doc

if TYPE_CHECKING:
    from airflow.sdk import Context

_BAD = frozenset({"failed", "upstream_failed"})


class CloudTPUVerdictOperator(BaseOperator):
    """Fail if any task above has failed, at whatever distance; what was skipped is no failure.

    Airflow judges a DAG run by its last tasks. After a failed training the teardown and the report have succeeded, and
    in a run that a person has marked failed every task that was still to come is skipped: both would be a success. So
    this is the last task, below everything else. It makes itself a teardown without a setup, the one kind of task that
    Airflow 3.3 skips in no case.

    :param retries: tries after the first, for a worker that dies; a failure of the run is not tried again.
    :raises AirflowFailException: names the tasks that have failed.
    """

    ui_color = "#e8f0fe"

    def __init__(self, *, retries: int = 3, **kwargs: Any) -> None:
        super().__init__(**{"doc_md": task_doc(type(self)), "retries": retries, **kwargs})
        self.as_teardown(on_failure_fail_dagrun=True)

    def execute(self, context: Context) -> None:
        """Look at every task above."""
        from airflow_tpu.clients.airflow_state import task_states

        instance = context["ti"]
        states = task_states(instance.dag_id, instance.run_id, sorted(self.get_flat_relative_ids(upstream=True)))
        bad = [f"{name} ({state})" for name, state in sorted(states.items()) if state in _BAD]
        if bad:
            raise AirflowFailException(f"the run has failed: {', '.join(bad)}. The log of each failed task says why.")
        self.log.info("none of the %d task(s) above has failed", len(states))
