"""Every process that a task hangs on, killed or held in every phase of a run: the long form of test_processes.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from operator import methodcaller

import psutil
import pytest

from localcloud.crew import Crew
from localcloud.testing import eventually
from tests.airflow.runs import PATIENCE, POLL, TrainingRun
from tests.airflow.stage import Stage
from tests.airflow.variants import CELERY, TRAIN, WORKING

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

HELD = 45.0
"""Seconds for which a phase of an instant is held, so that something can happen in it."""

OBSERVED = 240.0
"""Seconds that the ledger may have more than the meter: Airflow itself needs a minute or two to miss a worker."""


def to_create(run: TrainingRun) -> str:
    """Bring a run to where it waits for its TPU."""
    run.befall("queued.timeline", {"queued": run.key.node_id(1)}, wait=60)
    run.trigger(provisioning="queued-resource")
    eventually(run.resources, bool, PATIENCE, POLL)
    return "create"


def to_boot(run: TrainingRun) -> str:
    """Bring a run to where its TPU is READY, but lets nobody log in yet."""
    run.befall("vm.ssh", {"node": run.key.node_id(1)}, key_late_seconds=45)
    run.trigger()
    eventually(run.is_ready, bool, PATIENCE, POLL)
    return "create"


def to_ship(run: TrainingRun) -> str:
    """Bring a run to where its script is being shipped over a connection that is silent from now on."""
    run.trigger()
    eventually(lambda: has_file(run, "runner.py"), bool, PATIENCE, 0.02)
    on_machine(run, "freeze")
    return "train"


def to_start(run: TrainingRun) -> str:
    """Bring a run to where its VM says in the bucket which attempt it is, before the script begins."""
    claim = {"object": f"*/{run.key.name}/checkpoints/attempts/1.json", "method": "P*"}
    run.befall("gcs.request", claim, action="delay", seconds=HELD)
    run.trigger()
    until_struck(run)
    return "train"


def to_checkpoint(run: TrainingRun) -> str:
    """Bring a run to where a checkpoint is being mirrored."""
    upload = {"object": f"*/{run.key.name}/checkpoints/attempt-1/*/state", "method": "P*"}
    run.befall("gcs.request", upload, action="delay", seconds=HELD)
    run.trigger(environment=f"STORY={run.name}\nSAVES=2")
    until_struck(run)
    return "train"


def until_struck(run: TrainingRun) -> None:
    """Wait until the fault that was scripted for the run has struck."""
    eventually(run.cloud.cloud.faults.unused, lambda unused: run.name not in unused, PATIENCE, POLL)


def has_file(run: TrainingRun, name: str) -> bool:
    """Whether the run's machine has a file of this name on its disk."""
    return any(name in files for crew in crews(run) for _, _, files in os.walk(crew.directory))


def on_machine(run: TrainingRun, action: str) -> None:
    """Freeze the run's machine, connections and all, or thaw it if it is there."""
    for crew in crews(run):
        run.cloud.run(crew.each(methodcaller(action)))


def crews(run: TrainingRun) -> list[Crew]:
    """The workers of the run's TPU; nothing while it has none."""
    nodes = [row["name"] for row in run.cloud.snapshot()["nodes"] if row["name"].endswith(f"/{run.key.node_id(1)}")]
    found = (run.cloud.call(partial(run.cloud.cloud.fleet.crew, node)) for node in nodes)
    return [crew for crew in found if crew is not None]


def to_train(run: TrainingRun) -> str:
    """Bring a run to where it trains."""
    run.trigger()
    run.until_training("running")
    return "train"


def to_follow(run: TrainingRun) -> str:
    """Bring a run to where a triggerer follows its training."""
    run.trigger()
    run.until_training("deferred")
    return "train"


def to_copy(run: TrainingRun) -> str:
    """Bring a run to where it copies what the training has left."""
    metrics = {"object": f"*{run.key.name}/attempt-1/output/metrics.json", "method": "GET"}
    run.befall("gcs.request", metrics, action="delay", seconds=HELD)
    run.trigger()
    run.let_end()
    return "copy"


def to_delete(run: TrainingRun) -> str:
    """Bring a run to where it waits for its TPU to be gone from the lists."""
    run.befall("tpu.list", {"event": "delete", "name": f"*/{run.key.node_id(1)}"}, seconds=45)
    run.trigger()
    run.let_end()
    return "delete"


def kill_task(run: TrainingRun, pid: int) -> None:
    """The task's own process."""
    os.kill(pid, signal.SIGKILL)


def kill_supervisor(run: TrainingRun, pid: int) -> None:
    """The worker that started it and tells Airflow of it; the task is left behind and goes on for a while."""
    psutil.Process(pid).parent().kill()  # type: ignore[union-attr]


def kill_scheduler(run: TrainingRun, pid: int) -> None:
    """The scheduler with all its workers and their tasks, as a machine that loses its power."""
    run.stack.kill("scheduler")
    run.stack.start("scheduler")


@pytest.mark.parametrize("kill", [kill_task, kill_supervisor, kill_scheduler], ids=["task", "supervisor", "scheduler"])
@pytest.mark.parametrize(
    "bring",
    [to_create, to_boot, to_ship, to_start, to_train, to_checkpoint, to_copy, to_delete],
    ids=["creating", "booting", "shipping", "starting", "training", "checkpointing", "copying", "deleting"],
)
def test_killed(
    stage: Stage,
    bring: Callable[[TrainingRun], str],
    kill: Callable[[TrainingRun, int], None],
    request: pytest.FixtureRequest,
) -> None:
    """The scheduler has the task tried again, the next try finds TPU and training, and the run ends green."""
    run = stage.run(WORKING, request.node.callspec.id)
    task = bring(run)
    run.until(task, "running")
    kill(run, eventually(lambda: run.task(task)["pid"], lambda pid: pid is not None, PATIENCE, POLL))
    on_machine(run, "thaw")
    run.until(task, "running", "success", tries=2)
    assert len(run.alive()) <= 1
    run.let_end()
    assert set(run.until_over().values()) == {"success"}
    assert len(run.starts()) == 1
    run.assert_nothing_left(OBSERVED)


@pytest.mark.parametrize(
    "bring",
    [to_create, to_start, to_follow, to_checkpoint, to_delete],
    ids=["creating", "starting", "training", "checkpointing", "deleting"],
)
def test_triggerer_killed(stage: Stage, bring: Callable[[TrainingRun], str], request: pytest.FixtureRequest) -> None:
    """Another triggerer goes on with the wait, the training does not notice, and the run ends green."""
    run = stage.run(TRAIN, f"triggerer-{request.node.callspec.id}")
    task = bring(run)
    run.until(task, "deferred")
    first = eventually(lambda: run.triggerer(task), bool, PATIENCE, POLL)
    stage.stack.kill(first)
    stage.stack.start(first)
    run.let_end()
    assert set(run.until_over().values()) == {"success"}
    assert len(run.starts()) == 1
    run.assert_nothing_left(OBSERVED)


def test_marked_failed_while_queued(stage: Stage) -> None:
    """A task that a worker is still to take is not run any more, and the TPU that waits for it is deleted once."""
    run = stage.run(CELERY, "marked-failed-while-queued")
    assert to_create(run) == "create"
    stage.stack.hold("worker")
    run.until("train", "queued")
    run.mark("train", "failed")
    stage.stack.signal("worker", signal.SIGCONT)
    tasks = run.until_over()
    assert (tasks["create"], tasks["train"], tasks["copy"]) == ("success", "failed", "upstream_failed")
    assert (tasks["delete"], run.state) == ("success", "failed")
    assert run.starts() == []
    run.assert_nothing_left()
