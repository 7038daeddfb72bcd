# SPDX-License-Identifier: Apache-2.0
"""How a run is brought to each phase, and held there for as long as something has to happen in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from operator import methodcaller

from localcloud.testing import eventually
from localcloud.vm.node_workers import NodeWorkers
from tests.airflow.runs import POLL, TIMEOUT, TrainingRun

HELD = 45.0
"""Seconds for which a phase of an instant is held, so that something can happen in it."""


def to_lease(run: TrainingRun) -> str:
    """Bring a run to where it takes its lease, before anything is asked of the Cloud TPU API."""
    trigger_into(run, f"*/leases/{run.key.name}.json")
    return "lease"


def to_create(run: TrainingRun) -> str:
    """Bring a run to where the create operation of its TPU is running."""
    target = {"verb": "create", "target": f"*/{run.key.node_id(1)}"}
    run.add_fault("tpu.operation", target, action="slow", resource="late", seconds=HELD)
    run.trigger()
    until_struck(run)
    return "create"


def to_wait(run: TrainingRun) -> str:
    """Bring a run to where its request waits in Google's queue."""
    run.add_fault("queued.timeline", {"queued": run.key.node_id(1)}, wait=60)
    run.trigger(provisioning="queued-resource")
    eventually(run.resources, bool, TIMEOUT, POLL)
    return "create"


def to_boot(run: TrainingRun) -> str:
    """Bring a run to where its TPU is READY, but refuses every login."""
    run.add_fault("vm.ssh", {"node": run.key.node_id(1)}, key_late_seconds=HELD)
    run.trigger()
    eventually(run.is_ready, bool, TIMEOUT, POLL)
    return "create"


def to_ship(run: TrainingRun) -> str:
    """Bring a run to where its script is being shipped over a connection that is silent from now on."""
    run.trigger()
    eventually(lambda: has_file(run, "runner.py"), bool, TIMEOUT, 0.02)
    on_machine(run, "freeze")
    return "train"


def to_start(run: TrainingRun) -> str:
    """Bring a run to where its VM says in the bucket which attempt it is, before the script begins."""
    trigger_into(run, f"*/{run.key.name}/train/checkpoints/attempts/1.json")
    return "train"


def to_checkpoint(run: TrainingRun) -> str:
    """Bring a run to where a checkpoint is being mirrored."""
    trigger_into(run, f"*/{run.key.name}/train/checkpoints/attempt-1/*/state", environment=f"STORY={run.name}\nSAVES=2")
    return "train"


def trigger_into(run: TrainingRun, name: str, **form: str) -> None:
    """Trigger a run, and wait until it hangs on writing an object of this name."""
    run.add_fault("gcs.request", {"object": name, "method": "P*"}, action="delay", seconds=HELD)
    run.trigger(**form)
    until_struck(run)


def until_struck(run: TrainingRun) -> None:
    """Wait until the fault that was scripted for the run has struck."""
    eventually(run.cloud.cloud.faults.unused, lambda unused: run.name not in unused, TIMEOUT, POLL)


def has_file(run: TrainingRun, name: str) -> bool:
    """Whether the run's machine has a file of this name on its disk."""
    return any(name in files for group in node_workers(run) for _, _, files in os.walk(group.directory))


def on_machine(run: TrainingRun, action: str) -> None:
    """Freeze the run's machine, connections and all, or thaw it if it is there."""
    for group in node_workers(run):
        run.cloud.run(group.each(methodcaller(action)))


def node_workers(run: TrainingRun) -> list[NodeWorkers]:
    """The workers of the run's TPU; nothing while it has none."""
    nodes = [row["name"] for row in run.cloud.snapshot()["nodes"] if row["name"].endswith(f"/{run.key.node_id(1)}")]
    found = (run.cloud.call(partial(run.cloud.cloud.worker_pool.workers_of, node)) for node in nodes)
    return [group for group in found if group is not None]


def to_train(run: TrainingRun, state: str = "running") -> str:
    """Bring a run to where it trains, its task being ``running``, or ``deferred`` and followed by a triggerer."""
    run.trigger()
    run.until_training(state)
    return "train"


def to_copy(run: TrainingRun) -> str:
    """Bring a run to where it copies what the training has left."""
    metrics = {"object": f"*{run.key.name}/train/attempt-1/output/metrics.json", "method": "GET"}
    run.add_fault("gcs.request", metrics, action="delay", seconds=HELD)
    run.trigger()
    run.let_end()
    return "copy"


def to_delete(run: TrainingRun) -> str:
    """Bring a run to where it waits for its TPU to be gone from the lists."""
    run.add_fault("tpu.list", {"event": "delete", "name": f"*/{run.key.node_id(1)}"}, seconds=HELD)
    run.trigger()
    run.let_end()
    return "delete"


BRING: dict[str, Callable[[TrainingRun], str]] = {
    "before create": to_lease,
    "creating": to_create,
    "waiting": to_wait,
    "booting": to_boot,
    "shipping": to_ship,
    "starting": to_start,
    "training": to_train,
    "checkpointing": to_checkpoint,
    "copying": to_copy,
    "deleting": to_delete,
}
"""By phase; each returns the task that is in it."""
