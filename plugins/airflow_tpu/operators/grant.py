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

    from airflow_tpu.lifecycle.run_context import Workbench


class CloudTPUCheckGrantOperator(CloudTPUBaseOperator):
    """Check the form in full, then the grant: first by itself, before any API call, then against what is alive.

    Enforcement is not here but at the create call, which takes a permit of that moment.

    :return: the permit as a person and a report read it.
    """

    @stated(NOTHING_CREATED)
    def execute(self, context: Context) -> dict[str, Any]:
        """Refuse with every reason, or describe what covers the run."""
        from airflow_tpu.lifecycle.project_snapshot import take_census

        bench = self.bench(context)
        end = self._end(bench, dt.datetime.now(dt.UTC))
        self._alone(bench, end)
        for line in self._doubts(bench):
            self.log.warning("%s", line)
        order = bench.order()
        reserved = bench.reservations.read()
        inventory = bench.tpu.run(take_census).inventory()
        request = order.request(bench.key, end)
        permit = authorize(bench.grant, request, inventory, dt.datetime.now(dt.UTC), reserved)
        self.log.info("%s", permit)
        self.log.info("the grant ends %s", bench.grant.ends_at)
        return permit.to_json()

    def _end(self, bench: Workbench, now: dt.datetime) -> dt.datetime:
        """When the run will have ended; a form that is wrong is refused with the grant's reasons too."""
        try:
            return bench.deadline(now)
        except ConfigError as error:
            raise with_grant(error, conf_mapping(self.conf), bench.catalogue, bench.grant, now) from error

    def _doubts(self, bench: Workbench) -> list[str]:
        credentials = bench.tpu.endpoint.credentials
        projects = (getattr(credentials, name, None) for name in ("project_id", "quota_project_id"))
        return identity_warnings(bench.grant.project_id, *projects)

    def _alone(self, bench: Workbench, end: dt.datetime) -> None:
        """What the script, the form and the grant file alone refuse is refused before any call of the TPU API."""
        from airflow_tpu.lifecycle.training.launch import build_bundle

        build_bundle(bench)
        request = Request(bench.spec, bench.accelerator, end, paid_reason=bench.conf.allow_paid_reason)
        authorize(bench.grant, request, Inventory(), dt.datetime.now(dt.UTC))
