"""Count a loss in the run's lease, against the newest checkpoint that is safe in the bucket."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_tpu import protocol
from airflow_tpu.core.budget import counts
from airflow_tpu.core.plan import checkpoints_uri

if TYPE_CHECKING:
    from airflow_tpu.core.lease import Lease
    from airflow_tpu.errors import BudgetExhausted, TPUError
    from airflow_tpu.hooks.workbench import Workbench

log = logging.getLogger(__name__)

# A manifest is written last: a folder that has one is complete.
_COMPLETE = re.compile(f"/{protocol.CHECKPOINT_FOLDER}/{re.escape(protocol.CHECKPOINT_MANIFEST)}$")


def spend(bench: Workbench, lease: Lease, error: TPUError) -> BudgetExhausted | None:
    """Count how an attempt ended, and say when it was once too often.

    :param bench: hooks and stores.
    :param lease: this attempt's lease.
    :param error: how the attempt ended.
    :return: the error that ends the run, None while one more attempt is allowed.
    """
    if not counts(error):
        return None
    step = newest_step(bench)
    lease = bench.leases.update(lease, lambda now: replace(now, spent=now.spent.after(error, step)))
    allowed = bench.conf.max_preemptions
    where = "no checkpoint yet" if step is None else f"the newest safe checkpoint is of step {step}"
    log.warning("interruption %d of %d allowed (%s); %s", lease.spent.losses, allowed, type(error).__name__, where)
    return lease.spent.verdict(error, allowed, checkpoints=step is not None)


def newest_step(bench: Workbench) -> int | None:
    """Training steps of the run's newest complete checkpoint in the bucket, None when there is none."""
    listing = bench.storage.listing(f"{checkpoints_uri(bench.conf, bench.key.name)}/")
    steps = [int(found[2]) for info in listing if (found := _COMPLETE.search(info.name))]
    return max(steps, default=None)
