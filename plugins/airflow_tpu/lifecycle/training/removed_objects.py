# SPDX-License-Identifier: Apache-2.0
"""Say in a run's own log when its bucket keeps and bills what the run removes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_tpu.core.ledger.bucket_retention import warnings
from airflow_tpu.hooks.bucket_facts import split_uri

if TYPE_CHECKING:
    from airflow_tpu.lifecycle.run_context import RunContext

log = logging.getLogger(__name__)


def kept_seconds(run: RunContext) -> int:
    """For how long the bucket of a run keeps removed checkpoints, 0 if it does not; warn where it costs something.

    How many bytes that will be, the VM counts while the run removes old checkpoints.

    :param run: clients and the form.
    """
    bucket, _ = split_uri(run.conf.artifacts_uri)
    retention = run.clients.storage.facts.retention(bucket)
    for line in warnings(bucket, retention):
        log.warning("%s", line)
    return retention.soft_delete_seconds if retention is not None else 0
