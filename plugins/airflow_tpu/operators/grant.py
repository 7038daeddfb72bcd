# SPDX-License-Identifier: Apache-2.0
"""Say early, and so that a person can read it, whether the grant covers the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_tpu.consequences import NOTHING_CREATED
from airflow_tpu.errors import RowInUse
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.reporting import reported

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPUCheckGrantOperator(CloudTPUBaseOperator):
    """Check the form in full, then the grant: first by itself, before any API call, then against what is alive.

    The rights that the run will need are tried, and a triggerer has to be alive if its tasks defer; a paused
    ``tpu_reaper`` is a warning.

    Enforcement is not here but at the create call, which takes a permit of that moment.

    Where other runs of this Airflow use the rows it says so and succeeds: the run waits for them.

    :return: the permit as a person and a report read it; what a run that has to wait waits for.
    """

    consequence = NOTHING_CREATED

    @reported
    def execute(self, context: Context) -> dict[str, Any]:
        """Refuse with every reason, or describe what covers the run."""
        from airflow_tpu.lifecycle.lease import check_grant
        from airflow_tpu.lifecycle.preflight.processes import check_triggerer, warn_of_reaper

        run = self.run_context(context)
        if self.deferrable:
            check_triggerer()
        warn_of_reaper()
        try:
            permit = check_grant(run)
        except RowInUse as error:
            self.log.warning("covered, but not now: %s", error)
            self.log.info("the task create will wait for room, in no worker, until the deadline of the run")
            return {"waits_for": [str(fault) for fault in error.faults]}
        self.log.info("%s", permit)
        self.log.info("the grant ends %s", run.grant.ends_at)
        return permit.to_json()
