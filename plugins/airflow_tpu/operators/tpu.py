# SPDX-License-Identifier: Apache-2.0
"""Create and delete TPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_tpu.consequences import DELETE_PENDING
from airflow_tpu.core import json_form
from airflow_tpu.core.run.trigger_context import raise_for
from airflow_tpu.links.tpu import CloudTPUNodeLink
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.ledger import announce
from airflow_tpu.operators.provision import CloudTPUProvisionOperator
from airflow_tpu.operators.reporting import reported

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.ledger.events import Closed
    from airflow_tpu.lifecycle.ensure_tpu import Ready
    from airflow_tpu.lifecycle.run_context import RunContext


class CloudTPUCreateOperator(CloudTPUProvisionOperator):
    """Create the run's TPU if the grant covers it, and wait until every worker has run a command.

    A second try, or another attempt of the same run, adopts the TPU that is there. A run without a TPU at the end of
    its window (``start_within_hours`` of the form) gives back what it has asked for, and the task is skipped.

    :return: node, type, zone and instant of READY.
    """

    operator_extra_links = (CloudTPUNodeLink(),)

    def on_ready(self, context: Context, run: RunContext, found: Ready) -> dict[str, Any]:
        """Publish the link and describe the TPU."""
        record, node = found.record, found.node
        CloudTPUNodeLink.persist_node(context, node)
        alternative = replace(run.request.alternative(record), zone=record.zone)
        ready_at = record.life(node.id).ready_at
        self.log.info("TPU ready: %s, %s", node.id, alternative)
        return {
            "node": str(node),
            "accelerator_type": alternative.accelerator_type,
            "zone": alternative.zone,
            "tier": str(alternative.tier),
            "ready_at": ready_at.isoformat() if ready_at else None,
        }


class CloudTPUDeleteOperator(CloudTPUBaseOperator):
    """Delete everything of this run, wait until it is gone, close the ledger, give the lease back.

    What no task has copied is brought to the bucket first, if the TPU still answers: a run that a person has declared
    over has no *copy*.

    It needs neither XCom nor a permit to delete; a TPU that is gone already is a success; a colleague's TPU is
    never touched. Use it as the teardown of the lease.

    The grant is only asked where the books are: one that has ended stops nothing, and one that cannot be read fails
    the task after the TPU is gone.

    :return: every incarnation of the run, and how it ended.
    :raises LedgerError: the TPU is gone and the grant file could not be read, so that ledger and lease stay open.
    """

    consequence = DELETE_PENDING

    @reported
    def execute(self, context: Context) -> list[dict[str, str]]:
        """Delete first, then keep the books."""
        from airflow_tpu.lifecycle.teardown import StillThere, teardown
        from airflow_tpu.triggers.tpu import CloudTPUGoneTrigger

        run = self.run_context(context)
        _ = run.clients.tpu.endpoint
        found = teardown(run, self.waiting())
        if isinstance(found, StillThere):
            watch = self.trigger_context(run.key, "teardown", found.until, found.since)
            zones = None if found.zones is None else sorted(found.zones)
            trigger = CloudTPUGoneTrigger(watch, [str(name) for name in found.names], zones)
            self.defer(trigger=trigger, method_name="execute_gone")
        return self._described(context, run, found)

    @reported
    def execute_gone(self, context: Context, event: Mapping[str, Any] | None = None) -> list[dict[str, str]]:
        """Continue after the trigger has seen everything gone (or fail, and be tried again)."""
        from airflow_tpu.lifecycle.ends.incarnation_end import IncarnationEnd
        from airflow_tpu.lifecycle.teardown import finish

        endings = json_form.from_json(list[IncarnationEnd], raise_for(event).get("endings", []))
        run = self.run_context(context)
        return self._described(context, run, finish(run, endings))

    def _described(self, context: Context, run: RunContext, ended: list[Closed]) -> list[dict[str, str]]:
        announce(context, self.outlets, run)
        return [{"node": event.node_id, "reason": str(event.end_reason)} for event in ended]
