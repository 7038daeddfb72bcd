"""Count a loss in the run's lease, against the newest checkpoint that is safe in the bucket."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_tpu import protocol
from airflow_tpu.core.model import script_json
from airflow_tpu.core.run.budget import counts
from airflow_tpu.core.run.interruption import Interruption, Reached, lost_seconds
from airflow_tpu.core.run.plan import checkpoints_uri
from airflow_tpu.hooks.artifacts import split_uri

if TYPE_CHECKING:
    import datetime as dt

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

    :param error: the error that ended it.
    :param at: when.
    :param reached: how far it was when it was last heard of.
    """

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
    safe = newest_checkpoint(run)
    step = safe.safe_step
    record = run.stores.runs.update(record, lambda now: replace(now, spent=now.spent.after(error, step)))
    interruption = Interruption(
        reason=type(error).__name__,
        number=record.spent.losses,
        allowed=run.conf.max_preemptions,
        step=ended.reached.step,
        safe_step=step,
        lost_seconds=lost_seconds(ended.at, record.attempt_at, safe.safe_at or ended.reached.safe_at),
    )
    return interruption, record.spent.exhausted(error, interruption.allowed, checkpoints=step is not None)


def newest_checkpoint(run: RunContext) -> Reached:
    """Training steps and age of the run's newest complete checkpoint in the bucket; nothing is known without one."""
    listing = run.clients.storage.listing(f"{checkpoints_uri(run.conf, run.key.name)}/")
    steps = {int(found[2]): info.name for info in listing if (found := _COMPLETE.search(info.name))}
    if not steps:
        return Reached()
    step = max(steps)
    bucket, _ = split_uri(run.conf.artifacts_uri)
    return Reached(safe_step=step, safe_at=_created(run, f"gs://{bucket}/{steps[step]}"))


def _created(run: RunContext, uri: str) -> float | None:
    """When a checkpoint was saved by its manifest, which a script has written; None if that is no time."""
    text = run.clients.storage.read_start(uri, script_json.READ_LIMIT + 1)
    try:
        created = script_json.parse(text or b"").get("created")
    except ValueError as error:
        log.warning("when the newest checkpoint was saved is not known: %s %s", uri, error)
        return None
    if isinstance(created, int | float) and not isinstance(created, bool) and 0 < created < _LATEST:
        return float(created)
    return None
