"""Create and delete TPUs."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.log_groups import phase
from airflow_tpu.consequences import DELETE_PENDING, DELETED, stated
from airflow_tpu.core.run.trigger_context import raise_for
from airflow_tpu.errors import ConfigError, LeaseLost, LedgerError
from airflow_tpu.links.tpu import CloudTPUNodeLink
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.ledger import announce
from airflow_tpu.operators.provision import CloudTPUProvisionOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.core.tpu.resource_name import ResourceName
    from airflow_tpu.lifecycle.incarnation_end import Ending
    from airflow_tpu.lifecycle.release import Release
    from airflow_tpu.lifecycle.run_context import Workbench

GONE_WITHIN = dt.timedelta(minutes=30)
"""A node may stay DELETING for long; after this the task's own retries, then the reaper, take over."""


class CloudTPUCreateOperator(CloudTPUProvisionOperator):
    """Create the run's TPU if the grant covers it, and wait until every worker has run a command.

    A second try, or another attempt of the same run, adopts the TPU that is there. A run without a TPU at the end of
    its window (``start_within_hours`` of the form) gives back what it has asked for, and the task is skipped.

    :return: node, type, zone and instant of READY.
    """

    operator_extra_links = (CloudTPUNodeLink(),)

    def on_ready(self, context: Context, bench: Workbench, record: RunRecord, node: ResourceName) -> dict[str, Any]:
        """Publish the link and describe the TPU."""
        CloudTPUNodeLink.persist_node(context, node)
        choice = replace(bench.choice(record), zone=record.zone)
        ready_at = record.life(node.id).ready_at
        self.log.info("TPU ready: %s, %s", node.id, choice)
        return {
            "node": str(node),
            "accelerator_type": choice.accelerator_type,
            "zone": choice.zone,
            "tier": str(choice.tier),
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

    @stated(DELETE_PENDING)
    def execute(self, context: Context) -> list[dict[str, str]]:
        """Delete first, then keep the books."""
        bench = self.bench(context)
        _ = bench.tpu.endpoint
        until = dt.datetime.now(dt.UTC) + GONE_WITHIN
        self._save(bench)
        with phase(self.log, "Ask for the delete"):
            asked = asyncio.run(self._ask(bench, ()))
        self._note(bench, asked.endings)
        asked.check()
        names = self._recorded(bench)
        if not asyncio.run(self._gone(bench, until, asked, names)):
            self._note(bench, asked.endings)
            self._defer_until_gone(bench, until, names)
        return self._done(context, bench, asked.endings)

    @stated(DELETE_PENDING)
    def execute_gone(self, context: Context, event: Mapping[str, Any] | None = None) -> list[dict[str, str]]:
        """Go on after the trigger has seen everything gone (or fail, and be tried again)."""
        from airflow_tpu.lifecycle.incarnation_end import Ending

        endings = [Ending.from_json(ending) for ending in raise_for(event).get("endings", [])]
        return self._done(context, self.bench(context), endings)

    def _save(self, bench: Workbench) -> None:
        """Save what no task has copied. No delete depends on that: what cannot be saved is lost with the TPU."""
        from airflow_tpu.clients.endpoints import cloud_failures
        from airflow_tpu.lifecycle.training.collect import save_rest

        try:
            save_rest(bench)
        except cloud_failures() as error:
            self.log.warning("what the run had produced and nobody has copied is not kept: %s", error)

    def _recorded(self, bench: Workbench) -> list[ResourceName]:
        """Full names of what the ledger has not closed yet: a list may not show it. No delete depends on the ledger."""
        from airflow_tpu.clients.endpoints import cloud_failures
        from airflow_tpu.lifecycle.project_snapshot import names_of

        try:
            return sorted(names_of(bench.ledger.open_records(bench.key)))
        except cloud_failures() as error:
            self.log.warning("the ledger cannot be read, only the lists tell what is there: %s", error)
            return []

    async def _ask(self, bench: Workbench, names: Iterable[ResourceName]) -> Release:
        from airflow_tpu.lifecycle.project_snapshot import look_again, take_census
        from airflow_tpu.lifecycle.release import delete_seen

        async with bench.tpu.client() as client:
            census = await look_again(client, await take_census(client), names)
            asked = await delete_seen(client, census, bench.key)
        for ending in asked.endings:
            self.log.info("deleting %s (%s)", ending.node_id, ending.reason)
        return asked

    async def _gone(self, bench: Workbench, until: dt.datetime, asked: Release, names: list[ResourceName]) -> bool:
        from airflow_tpu.lifecycle.wait import Pace, until_gone, within

        async def gone(client: Any) -> bool:
            await until_gone(client, bench.key, Pace(min(1.0, self.poll_interval), until, self._since), asked, names)
            return True

        self._since = dt.datetime.now(dt.UTC)
        async with bench.tpu.client() as client:
            return bool(await within(self.inline_seconds(until), gone(client)))

    def _note(self, bench: Workbench, endings: list[Ending]) -> None:
        """Note the ends before the wait: a try that is ended meanwhile must not lose when the TPU ended."""
        from airflow_tpu.lifecycle.incarnation_end import noted

        try:
            bench.runs.update(bench.runs.read(bench.key), lambda now: noted(now, endings))
        except ConfigError as error:  # _done tells it again, once nothing is billed any more
            self.log.error("the books of %s have to wait: %s", bench.key.name, error)
        except LeaseLost as error:  # an earlier try of this teardown has finished its books
            self.log.info("no end is noted: %s", error)

    def _close(self, bench: Workbench, endings: list[Ending]) -> None:
        """Keep the books when the TPU is gone: until then a delete may fail, and the TPU be charged again.

        :raises TransientError: a create was on its way meanwhile; what it brought is being deleted.
        """
        from airflow_tpu.lifecycle.incarnation_end import noted_ends, settled
        from airflow_tpu.lifecycle.project_snapshot import names_of
        from airflow_tpu.lifecycle.release import close_incarnations

        record = bench.runs.find(bench.key)
        unseen = close_incarnations(bench.ledger, record, bench.key, settled(noted_ends(record), endings))
        if unseen:  # they were not in the list, but may have come after it: whoever looks second sees the other
            asyncio.run(self._ask(bench, names_of(unseen))).check_none()

    def _defer_until_gone(self, bench: Workbench, until: dt.datetime, names: list[ResourceName]) -> None:
        from airflow_tpu.core.run.run_record import Lease, RunRecord
        from airflow_tpu.triggers.tpu import CloudTPUGoneTrigger

        nobody = RunRecord(bench.key, Lease("teardown", until), "")
        trigger = CloudTPUGoneTrigger(watch=self.watch(nobody, until).to_json(), names=[str(name) for name in names])
        self.defer(trigger=trigger, method_name="execute_gone")

    @stated(DELETED)
    def _done(self, context: Context, bench: Workbench, endings: list[Ending]) -> list[dict[str, str]]:
        from airflow_tpu.core.ledger.events import Closed

        _require_grant(bench)
        with phase(self.log, "Close the ledger records"):
            self._close(bench, endings)
        ended = [event for event in bench.ledger.events(bench.key) if isinstance(event, Closed)]
        with phase(self.log, "Give chips and lease back"):
            bench.reservations.release(bench.key.digest)
            bench.runs.release(bench.key)
        self.log.info("nothing of %s is left in the project", bench.key.name)
        announce(context, self.outlets, bench)
        return [{"node": event.node_id, "reason": str(event.end_reason)} for event in ended]


def _require_grant(bench: Workbench) -> None:
    try:
        _ = bench.grant
    except ConfigError as error:
        raise LedgerError(
            f"the ledger records and the lease of {bench.key.name} are still open, for the grant says where they are: "
            f"{error}\nMend the grant, then clear this task; the reaper closes them as well"
        ) from error
