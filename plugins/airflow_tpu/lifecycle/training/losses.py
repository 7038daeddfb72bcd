# SPDX-License-Identifier: Apache-2.0
"""Count a loss in the run's lease, against the newest checkpoint that is safe in the bucket."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_tpu import protocol
from airflow_tpu.clients.endpoints import cloud_failures
from airflow_tpu.core.model import script_json
from airflow_tpu.core.run.budget import counts
from airflow_tpu.core.run.interruption import Interruption, Reached, SafeCheckpoint, lost_seconds
from airflow_tpu.core.run.job import folder_of
from airflow_tpu.core.run.plan import checkpoints_uri
from airflow_tpu.errors import RunStopped
from airflow_tpu.hooks.bucket_facts import split_uri
from airflow_tpu.lifecycle.ends.end_reasons import lasting_reason
from airflow_tpu.lifecycle.ends.incarnation_end import CUT_OFF

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from airflow_tpu.core.run.run_record import RunRecord
    from airflow_tpu.errors import BudgetExhausted, TPUError
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)

_LATEST = 253402300800.0
"""Unix seconds at the end of the year 9999: no later time is one."""

# A manifest is written last: a folder that has one is complete.
_COMPLETE = re.compile(f"/{protocol.CHECKPOINT_FOLDER}/{re.escape(protocol.CHECKPOINT_MANIFEST)}$")


@dataclass(frozen=True)
class Ended:
    """How an attempt ended.

    :param node_id: the incarnation that it ran on.
    :param error: the error that ended it.
    :param at: when.
    :param reached: how far it was when it was last heard of.
    """

    node_id: str
    error: TPUError
    at: dt.datetime
    reached: Reached = field(default_factory=Reached)


def spend(run: RunContext, record: RunRecord, ended: Ended) -> tuple[Interruption, BudgetExhausted | None] | None:
    """Count how an attempt ended, and say when it was once too often.

    :param run: clients and stores.
    :param record: of the run, as this attempt knows it.
    :param ended: how the attempt ended.
    :return: None if it is no loss; else what it has cost, and the error that ends the run, None while one more attempt
        is allowed.
    """
    error = ended.error
    if not counts(error):
        return None
    safe = newest_checkpoint(run, run.training)
    cause = lasting_reason(error)

    def counted(now: RunRecord) -> RunRecord:
        life = now.with_life(ended.node_id, cause=cause, lost_seconds=lost_since(now, ended, safe))
        return replace(life, spent=now.spent.of(run.training).after(error, safe.order if safe else None))

    record = run.stores.runs.update(record, counted)
    interruption = Interruption(
        reason=type(error).__name__,
        number=record.spent.losses,
        allowed=run.conf.max_preemptions,
        step=ended.reached.step,
        safe_step=safe.step if safe else None,
        lost_seconds=record.life(ended.node_id).lost_seconds,
        unnumbered=safe is not None and safe.step is None,
    )
    return interruption, record.spent.exhausted(error, interruption.allowed, newest=str(safe) if safe else "")


def lost_since(record: RunRecord, ended: Ended, safe: SafeCheckpoint | None) -> float | None:
    """Seconds of work that the end of an attempt has lost: since the checkpoint that is safe, and no other.

    :param record: of the run, as the store has it now.
    :param ended: how it ended.
    :param safe: the newest checkpoint in the bucket, None if there is none.
    :return: None if that is not known.
    """
    last = record.last_attempt(record.current)
    if last.node_id != ended.node_id:
        return 0.0  # nothing was started on it
    at = safe.at if safe else None
    if safe is not None and at is None:
        if safe.attempt == last.number and ended.reached.safe_step != safe.step:
            return None
        at = ended.reached.safe_at
    return lost_seconds(ended.at, last.at, at)


def with_lost_work(run: RunContext, record: RunRecord) -> RunRecord:
    """The record with the work that was lost where a delete of ours has cut a script off: it had no time to look.

    :param run: clients and stores.
    :param record: of the run; of an attempt that is still the last one.
    """
    last = record.last_attempt(record.current)
    life = record.life(last.node_id)
    ended, is_known = life.ended_at, life.lost_seconds is not None
    if life.cause not in CUT_OFF or is_known or ended is None:
        return record
    try:
        stopped = Ended(last.node_id, RunStopped("its TPU was deleted while it ran"), ended)
        lost = lost_since(record, stopped, newest_checkpoint(run, record.current))
        return run.stores.runs.amend(run.key, lambda now: now.with_life(stopped.node_id, lost_seconds=lost)) or record
    except cloud_failures() as error:
        log.warning("how much work was lost with %s stays unknown: %s", last.node_id, error)
        return record


def newest_checkpoint(run: RunContext, training: str) -> SafeCheckpoint | None:
    """The newest complete checkpoint of a training in the bucket, None without one."""
    folder = folder_of(run.key.name, training)
    listing = run.clients.storage.listing(f"{checkpoints_uri(run.conf, folder)}/")
    complete = {(int(found[2]), int(found[1])): info.name for info in listing if (found := _COMPLETE.search(info.name))}
    if not complete:
        return None
    order, attempt = max(complete)
    bucket, _ = split_uri(run.conf.artifacts_uri)
    told = _told(run, f"gs://{bucket}/{complete[order, attempt]}")
    step = told.get("step", order)
    return SafeCheckpoint(
        attempt, order, step if isinstance(step, int) and not isinstance(step, bool) else None, _instant(told)
    )


def _told(run: RunContext, uri: str) -> dict[str, Any]:
    """Content of a manifest, which a script has written; nothing if that is no JSON object."""
    text = run.clients.storage.read_start(uri, script_json.READ_LIMIT + 1)
    try:
        return script_json.parse(text or b"")
    except ValueError as error:
        log.warning("when the newest checkpoint was saved is not known: %s %s", uri, error)
        return {}


def _instant(told: Mapping[str, Any]) -> float | None:
    """When a checkpoint was saved by its manifest; None if that is no time."""
    created = told.get("created")
    if isinstance(created, int | float) and not isinstance(created, bool) and 0 < created < _LATEST:
        return float(created)
    return None
