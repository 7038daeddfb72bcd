"""Say early, and so that a person can read it, whether the grant covers the run."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from airflow_tpu.consequences import NOTHING_CREATED, stated
from airflow_tpu.core.grant.authorize import authorize
from airflow_tpu.core.grant.create_request import Request
from airflow_tpu.core.grant.form_reasons import with_grant
from airflow_tpu.core.grant.inventory import Inventory
from airflow_tpu.core.grant.project_identity import identity_warnings
from airflow_tpu.errors import ConfigError
from airflow_tpu.lifecycle.run_context import conf_mapping
from airflow_tpu.operators.base import CloudTPUBaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.lifecycle.run_context import RunContext


class CloudTPUCheckGrantOperator(CloudTPUBaseOperator):
    """Check the form in full, then the grant: first by itself, before any API call, then against what is alive.

    Enforcement is not here but at the create call, which takes a permit of that moment.

    :return: the permit as a person and a report read it.
    """

    @stated(NOTHING_CREATED)
    def execute(self, context: Context) -> dict[str, Any]:
        """Refuse with every reason, or describe what covers the run."""
        from airflow_tpu.lifecycle.project_snapshot import take_snapshot

        run = self.run_context(context)
        end = self._end(run, dt.datetime.now(dt.UTC))
        self._alone(run, end)
        for line in self._doubts(run):
            self.log.warning("%s", line)
        order = run.request.order()
        reserved = run.stores.reservations.read()
        inventory = run.clients.tpu.run(take_snapshot).inventory()
        request = order.request(run.key, end)
        permit = authorize(run.grant, request, inventory, dt.datetime.now(dt.UTC), reserved)
        self.log.info("%s", permit)
        self.log.info("the grant ends %s", run.grant.ends_at)
        return permit.to_json()

    def _end(self, run: RunContext, now: dt.datetime) -> dt.datetime:
        """When the run will have ended; a form that is wrong is refused with the grant's reasons too."""
        try:
            return run.request.deadline(now)
        except ConfigError as error:
            raise with_grant(error, conf_mapping(self.conf), run.catalogue, run.grant, now) from error

    def _doubts(self, run: RunContext) -> list[str]:
        credentials = run.clients.tpu.endpoint.credentials
        projects = (getattr(credentials, name, None) for name in ("project_id", "quota_project_id"))
        return identity_warnings(run.grant.project_id, *projects)

    def _alone(self, run: RunContext, end: dt.datetime) -> None:
        """What the script, the form and the grant file alone refuse is refused before any call of the TPU API."""
        from airflow_tpu.lifecycle.training.launch import build_bundle

        build_bundle(run)
        request = Request(run.request.spec, run.request.accelerator, end, paid_reason=run.conf.allow_paid_reason)
        authorize(run.grant, request, Inventory(), dt.datetime.now(dt.UTC))
