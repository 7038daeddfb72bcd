"""Say early, and so that a person can read it, whether the grant covers the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_tpu.consequences import NOTHING_CREATED, stated
from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CloudTPUCheckGrantOperator(CloudTPUBaseOperator):
    """Check the form in full, then the grant: first by itself, before any API call, then against what is alive.

    Enforcement is not here but at the create call, which takes a permit of that moment.

    :return: the permit as a person and a report read it.
    """

    @stated(NOTHING_CREATED)
    def execute(self, context: Context) -> dict[str, Any]:
        """Refuse with every reason, or describe what covers the run."""
        from airflow_tpu.lifecycle.lease import check_grant

        run = self.run_context(context)
        permit = check_grant(run)
        self.log.info("%s", permit)
        self.log.info("the grant ends %s", run.grant.ends_at)
        return permit.to_json()
