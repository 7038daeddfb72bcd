# SPDX-License-Identifier: Apache-2.0
"""Delete what outlived its run: the safety net that depends on no task, no trigger and no teardown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_tpu.consequences import DELETE_PENDING
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.reporting import reported

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPUReaperOperator(CloudTPUBaseOperator):
    """Delete every TPU of this Airflow whose lease has ended or whose DAG run is over, in all zones.

    What is another Airflow's, or of unknown origin, is reported and never touched. One failed delete does not stop the
    others; the task fails at the end, so that the failure is noticed.

    The grant is only asked where the leases are: one that has ended stops nothing. Where it, or the bucket, cannot be
    read, the expiry on each TPU's own label decides.

    A run record or ledger event that cannot be read, damaged or of another release, is logged by its name; its run is
    left alone, and the round continues with the others.

    :return: what was deleted, what else is alive in the project, which records or zones could not be read.
    :raises LedgerError: grant file or bucket could not be read; what has expired was deleted all the same.
    :raises TransientError: something could not be deleted, or a zone in which a run has something did not answer.
    """

    consequence = DELETE_PENDING

    template_fields: Sequence[str] = ("gcp_conn_id", "impersonation_chain")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(conf={}, **kwargs)

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """One round."""
        from airflow_tpu.clients.airflow_state import run_state
        from airflow_tpu.lifecycle.reap import reap

        run = self.run_context(context)
        return reap(run, run_state, run.key.airflow).to_json()
