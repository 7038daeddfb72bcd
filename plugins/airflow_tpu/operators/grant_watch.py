# SPDX-License-Identifier: Apache-2.0
"""Check the grant once a day: give notice before it ends, and fail while something is billed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from airflow_tpu.consequences import BILLED
from airflow_tpu.errors import Fault, GrantViolation, TransientError
from airflow_tpu.notify import Message, recipients
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.reporting import reported

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_tpu.core.ledger.usage import Usage
    from airflow_tpu.lifecycle.run_context import RunContext

NOTICE_ASSET = "tpu-grant-notice"
"""Asset with one event for each notice before the grant ends."""


class CloudTPUGrantNoticeOperator(CloudTPUBaseOperator):
    """Give the notice that is due: 7 days and 1 day before the end, and at it; each once, by log, asset event and mail.

    The recipients in ``[airflow_tpu] failure_notifiers`` get it by mail or Slack. A message that cannot be sent fails
    the task, and the next try sends all of them again.

    :return: the text, empty when none is due or it has been given.
    """

    template_fields: Sequence[str] = ("gcp_conn_id", "impersonation_chain")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(conf={}, outlets=[Asset(NOTICE_ASSET)], **kwargs)

    @reported
    def execute(self, context: Context) -> str:
        """Choose the notice that is due, send it, and record that it was sent."""
        from airflow_tpu.core.report.notices import due_stage, notice
        from airflow_tpu.stores.models import versions_by_model

        run, now = self.run_context(context), dt.datetime.now(dt.UTC)
        stage = due_stage(run.grant, now)
        # A grant that was extended has another end, and its notices are new ones.
        uri = f"{run.stores.ledger.root}/notices/{run.grant.ends_at:%Y%m%dT%H%MZ}-{stage}.json"
        if stage is None or run.clients.storage.listing(uri):
            return ""
        versions = versions_by_model(run.clients.storage, run.stores.ledger.root)
        text = notice(run.grant, _usage(run, now), stage, versions)
        for line in text.splitlines():
            self.log.warning("%s", line)
        message = Message(f"TPU grant of {run.grant.project_id}: {text.splitlines()[0]}", text)
        for recipient in recipients():
            recipient.send(message, context)
        context["outlet_events"][Asset(NOTICE_ASSET)].extra = {"days": stage, "text": text}
        run.clients.storage.write_json(uri, {"at": now.isoformat(), "text": text}, 0)
        return text


class CloudTPUGrantWatchOperator(CloudTPUBaseOperator):
    """Report what is left of the grant and which part of it is idle; fail while a living TPU is not covered.

    A bucket that bills what was deleted is a warning in the log.

    :return: one line for the term and one for each allowance.
    :raises GrantViolation: something alive in the project is billed now; every such thing at once.
    :raises TransientError: a zone did not answer, so what is billed there is unknown; the next try asks again.
    """

    template_fields: Sequence[str] = ("gcp_conn_id", "impersonation_chain")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(conf={}, **kwargs)

    @reported
    def execute(self, context: Context) -> list[str]:
        """Check once."""
        from airflow_tpu.core.ledger.bucket_retention import warnings
        from airflow_tpu.core.report.notices import standing, uncovered
        from airflow_tpu.lifecycle.project_snapshot import take_snapshot

        run, now = self.run_context(context), dt.datetime.now(dt.UTC)
        inventory = run.clients.tpu.run(take_snapshot).inventory()
        # Before the ledger is read: a damaged ledger must not hide what is billed.
        billed = [Fault("project_id", run.grant.project_id, line) for line in uncovered(run.grant, inventory, now)]
        if billed:
            raise GrantViolation(billed, "what is alive outside the grant", consequence=BILLED)
        for line in warnings(run.grant.bucket, run.clients.storage.facts.retention(run.grant.bucket)):
            self.log.warning("%s", line)
        lines = standing(run.grant, inventory, _usage(run, now), now)
        for line in lines:
            self.log.info("%s", line)
        if inventory.unreachable:
            # Unlike what is billed, which is reported at once, this may be over in a moment.
            raise TransientError(f"no answer from {', '.join(inventory.unreachable)}: what is billed there is unknown")
        return lines


def _usage(run: RunContext, now: dt.datetime) -> Usage:
    from airflow_tpu.core.ledger.usage import fold

    return fold(run.stores.ledger.events(), run.catalogue, now)
