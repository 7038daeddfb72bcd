# SPDX-License-Identifier: Apache-2.0
"""The tasks of a run, each one call of the product's own verb, as its operator makes it."""

from __future__ import annotations

from airflow_tpu.core.run.run_record import Holder
from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.lifecycle.ensure_tpu import Ready, ensure_tpu
from airflow_tpu.lifecycle.lease import take_lease
from airflow_tpu.lifecycle.release import abandon
from airflow_tpu.lifecycle.teardown import teardown
from tests.faults.virtual_context import TO_THE_END, VirtualContext


def lease(at: VirtualContext, key: RunKey, queued: bool) -> None:
    """The setup task."""
    take_lease(at.run(key, queued), Holder())


def train(at: VirtualContext, key: RunKey, queued: bool, seconds: float) -> None:
    """The task that ensures the TPU and uses it."""
    run = at.run(key, queued)
    found = ensure_tpu(run, run.stores.runs.read(key), TO_THE_END)
    if isinstance(found, Ready):
        at.process.sleep(seconds)


def kill(at: VirtualContext, key: RunKey, token: str) -> None:
    """``on_kill`` of an attempt, at any later time."""
    abandon(at.run(key), token)


def end(at: VirtualContext, key: RunKey) -> None:
    """The teardown."""
    teardown(at.run(key), TO_THE_END)
