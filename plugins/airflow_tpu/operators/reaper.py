"""Delete what outlived its run: the safety net that depends on no task, no trigger and no teardown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_tpu import settings
from airflow_tpu.errors import LedgerError, TransientError
from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.ledger.events import Opened
    from airflow_tpu.lifecycle.project_snapshot import Census
    from airflow_tpu.lifecycle.reap import Reaped
    from airflow_tpu.lifecycle.run_context import Workbench


class CloudTPUReaperOperator(CloudTPUBaseOperator):
    """Delete every TPU of ours whose lease has ended or whose DAG run is over, in all zones.

    What is not ours is reported and never touched. One failed delete does not stop the others; the task fails at the
    end, so that somebody looks.

    The grant is only asked where the leases are: one that has ended stops nothing. Where it, or the bucket, cannot be
    read, the expiry on each TPU's own label decides.

    :return: what was deleted, what could not be, what else is alive in the project.
    :raises LedgerError: grant file, bucket or a record could not be read; what has expired was deleted all the same.
    :raises TransientError: something could not be deleted, or a zone did not answer.
    """

    template_fields: Sequence[str] = ("gcp_conn_id", "impersonation_chain")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(conf={}, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """One round."""
        from airflow_tpu.clients.endpoints import cloud_failures
        from airflow_tpu.lifecycle import reap
        from airflow_tpu.lifecycle.project_snapshot import take_census

        bench = self.bench(context)
        census = bench.tpu.run(take_census)
        try:
            opened, damage = _open_records(bench)
            census = bench.tpu.run(lambda client: reap.with_unlisted(client, census, opened))
            reserved = bench.reservations.readable()
            states = reap.lease_states(bench.runs, _run_state, settings.airflow_address())
        except cloud_failures() as error:
            self._reap_by_labels(bench, census, error)
        done = bench.tpu.run(lambda client: reap.reap(client, census, states))
        reap.note(bench.ledger, bench.runs, done)
        if damage is not None:
            self._tell(done)
            raise damage
        left = bench.tpu.run(lambda client: reap.what_is_left(client, census, done))
        done.closed = reap.close_forgotten(bench.ledger, bench.runs, states, left, opened, done.endings)
        done.released = reap.release_forgotten(bench.reservations, reserved, states, left)
        reap.forget_runs(bench.runs, states, left)
        self._tell(done)
        return {
            "deleted": [str(sentence.name) for sentence in done.deleted],
            "foreign": done.foreign,
            "closed": done.closed,
            "released": done.released,
        }

    def _reap_by_labels(self, bench: Workbench, census: Census, error: Exception) -> NoReturn:
        from airflow_tpu.lifecycle.reap import reap

        done = bench.tpu.run(lambda client: reap(client, census, None))
        self._tell(done)
        raise LedgerError(
            f"{len(done.deleted)} TPU(s) were deleted because the expiry on their label is over; of the others nobody "
            f"can say whether a run still holds them, since the leases cannot be read: {error}"
        ) from error

    def _tell(self, done: Reaped) -> None:
        for sentence in done.deleted:
            self.log.warning("deleted %s: %s", sentence.name, sentence.reason)
        for line in done.foreign:
            self.log.info("not ours, left alone: %s", line)
        for node_id in done.closed:
            self.log.info("closed the ledger record of %s, which is gone", node_id)
        for run in done.released:
            self.log.info("gave back to the grant what %s had reserved", run)
        if done.failed or done.unreachable:
            failed = "; ".join(f"{name}: {text}" for name, text in done.failed.items())
            raise TransientError(
                f"not everything could be checked or deleted. Failed: {failed or 'none'}. Zones without an answer: "
                f"{', '.join(done.unreachable) or 'none'}. What lives there goes on being charged; the next round "
                "tries again."
            )


def _open_records(bench: Workbench) -> tuple[list[Opened], LedgerError | None]:
    """What the ledger has open; no delete depends on a record that cannot be read."""
    try:
        return bench.ledger.open_records(), None
    except LedgerError as error:
        return [], error


def _run_state(dag_id: str, run_id: str) -> str | None:
    """State of a DAG run; empty when Airflow has no such run."""
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    if RuntimeTaskInstance.get_dr_count(dag_id=dag_id, run_ids=[run_id]) == 0:
        return ""
    try:
        return RuntimeTaskInstance.get_dagrun_state(dag_id=dag_id, run_id=run_id)
    except AirflowRuntimeError:
        return None
