# SPDX-License-Identifier: Apache-2.0
"""What people do to a training through Airflow, and what happens to Airflow itself: real processes on PostgreSQL.

Tests marked ``together`` are stories that run side by side from when the first of them is waited for; the others
follow, one by one, and end processes that all of Airflow needs.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from localcloud.testing import eventually
from tests.airflow.browsing import looks_around, trains
from tests.airflow.nights import backfill, end_one_after_the_other
from tests.airflow.parallel_runs import ParallelRuns, together
from tests.airflow.runs import POLL, TIMEOUT, TrainingRun, colleagues, ends_green, ends_red, refusal, status_of
from tests.airflow.variants import BROKEN, CELERY, CHAMPION, MAPPED, NIGHTS, PAUSED, REMOVED, TIMED, TRAIN, WORKING
from tests.dags.evidence import ready_spans, upload

# The first test waits for Airflow to come up, and for its story among all the others.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


def kill_worker(run: TrainingRun, task: str) -> None:
    """Kill the process that a task runs in; the scheduler has it tried again."""
    os.kill(run.until_process(task), signal.SIGKILL)
    run.until(task, "up_for_retry")


# --- started by an asset ---


@together(CHAMPION)
def test_new_champion_starts_its_dag(run: TrainingRun) -> None:
    """An event of the champion's asset starts a run, whose training is told where the champion's artifacts are."""
    uri = upload(run.cloud, "champion/output/model.txt", "of the champion").removesuffix("/output/model.txt")
    event = {"asset_id": run.asset_id("tpu-model-digits"), "extra": {"artifacts_uri": uri}}
    run.client.call("/api/v2/assets/events", event)
    started = run.started_by("asset_triggered")
    assert set(started.until_over().values()) == {"success"}
    assert f"--model {uri}" in json.dumps(started.task("measure")["rendered_fields"])
    started.assert_nothing_left()


# --- a backfill ---


@together(NIGHTS)
def test_a_backfill_trains_one_night_at_a_time(run: TrainingRun) -> None:
    """Each on its own date, although Airflow runs all of them at once; the night that is due takes its turn too."""
    end_one_after_the_other(run, backfill(run, "2023-01-01", "2024-01-01", "2025-01-01"))


# --- ended by a person ---


@together(WORKING)
def test_marked_failed_while_running(run: TrainingRun) -> None:
    """The training dies with its TPU, which is deleted once, and the run is red."""
    run.trigger()
    run.until_training("running")
    run.mark("train", "failed")
    ends_red(run)


@together(TRAIN)
def test_marked_failed_while_deferred(run: TrainingRun) -> None:
    """The same happens when the training is followed by a triggerer."""
    run.trigger()
    run.until_training("deferred")
    run.mark("train", "failed")
    ends_red(run)


@together(WORKING)
def test_marked_failed_while_it_waits_for_its_next_try(run: TrainingRun) -> None:
    """A training that lives on while its task waits for the next try dies with its TPU."""
    run.trigger()
    run.until_training("running")
    kill_worker(run, "train")
    assert len(run.alive()) == 1
    run.mark("train", "failed")
    ends_red(run)


@together(TRAIN)
def test_marked_failed_while_it_waits_for_capacity(run: TrainingRun) -> None:
    """A request that waits in Google's queue is taken back, once, and costs nothing."""
    run.add_fault("queued.timeline", {"queued": run.key.node_id(1)}, wait="forever")
    run.trigger(provisioning="queued-resource")
    run.until("create", "deferred")
    run.mark("create", "failed")
    tasks = run.until_over()
    assert (tasks["create"], tasks["train"], tasks["delete"]) == ("failed", "upstream_failed", "success")
    assert run.state == "failed"
    assert ready_spans(run.cloud, [run.key.node_id(1)]) == {}
    run.assert_nothing_left()


@together(WORKING)
def test_marked_success_while_running(run: TrainingRun) -> None:
    """What the training has written so far is copied before its TPU is deleted."""
    run.trigger()
    run.until_training("running")
    run.mark("train", "success")
    ends_green(run)


@together(TRAIN)
def test_marked_success_while_deferred(run: TrainingRun) -> None:
    """The same happens when the training is followed by a triggerer."""
    run.trigger()
    run.until_training("deferred")
    run.mark("train", "success")
    ends_green(run)


@together(TRAIN)
def test_run_marked_failed_and_deleted(run: TrainingRun) -> None:
    """A running DAG run cannot be deleted; marked failed, it ends as failed, leaves nothing, and can be deleted."""
    run.trigger()
    run.until_training("deferred")
    assert run.delete() == 409
    run.mark_run("failed")
    tasks = run.until_over()
    assert (tasks["train"], tasks["copy"], tasks["delete"]) == ("failed", "skipped", "success")
    assert (tasks["verdict"], run.state) == ("failed", "failed")
    run.assert_nothing_left()
    assert run.delete() == 204


@together(WORKING)
def test_run_marked_failed_while_nothing_runs(run: TrainingRun) -> None:
    """The training waits for its next try, so Airflow fails no task; its TPU goes, and the run is red all the same."""
    run.trigger()
    run.until_training("running")
    kill_worker(run, "train")
    run.mark_run("failed")
    tasks = run.until_over()
    assert (tasks["train"], tasks["copy"], tasks["delete"]) == ("skipped", "skipped", "success")
    assert (tasks["verdict"], run.state) == ("failed", "failed")
    run.assert_nothing_left()


@together(TRAIN)
def test_run_marked_success(run: TrainingRun) -> None:
    """A run that is declared done ends green and leaves nothing, and what its training has written is in the bucket."""
    run.trigger()
    run.until_training("deferred")
    run.mark_run("success")
    tasks = run.until_over()
    assert (tasks["train"], tasks["copy"], tasks["delete"]) == ("success", "skipped", "success")
    assert run.state == "success"
    run.assert_nothing_left()
    assert run.steps() != []


@together(WORKING)
def test_cleared_while_running(run: TrainingRun) -> None:
    """The new attempt adopts the training, or replaces it if the old one has ended it first; there never are two."""
    run.trigger()
    run.until_training("running")
    assert run.clear("train") == ["delete", "lease", "train"]
    run.until("train", "running", tries=2)
    eventually(lambda: run.log("train", 2), lambda log: " done" in log, TIMEOUT, POLL)
    assert len(run.alive()) == 1
    copies = len(run.starts())
    assert copies in (1, 2)
    run.let_end()
    ends_green(run, copies)


@together(TRAIN)
def test_cleared_while_deferred(run: TrainingRun) -> None:
    """The new attempt adopts the training, or replaces it if the old one has ended it first; there never are two."""
    run.trigger()
    run.until_training("deferred")
    assert run.clear("train") == ["delete", "lease", "train"]
    run.until("train", "deferred", tries=2)
    assert len(run.alive()) == 1
    copies = len(run.starts())
    assert copies in (1, 2)
    run.let_end()
    ends_green(run, copies)


# --- ended by time ---


@together(TIMED)
def test_execution_timeout(run: TrainingRun) -> None:
    """A task that took too long fails at once, and TPU and training go with it."""
    run.trigger()
    run.until_training("running")
    run.until("train", "failed")
    ends_red(run)


@together(PAUSED)
def test_paused_beyond_its_deadline(run: TrainingRun) -> None:
    """The deadline alert takes the TPU although no task of the DAG is started any more."""
    run.trigger()
    run.until_training("deferred")
    run.pause(True)
    run.expire()
    assert eventually(run.resources, lambda found: not found, TIMEOUT, POLL) == []
    assert run.alive() == []
    run.pause(False)
    ends_red(run)


# --- processes that die ---


@together(WORKING)
def test_worker_killed_while_creating(run: TrainingRun) -> None:
    """The next try adopts the request that the dead one has made."""
    run.add_fault("queued.timeline", {"queued": run.key.node_id(1)}, wait=60)
    run.trigger(provisioning="queued-resource")
    eventually(run.resources, bool, TIMEOUT, POLL)
    kill_worker(run, "create")
    run.let_end()
    ends_green(run)
    assert list(run.ledger()) == [run.key.node_id(1)]


@together(WORKING)
def test_worker_killed_while_training(run: TrainingRun) -> None:
    """The training lives on, and the next try follows it."""
    run.trigger()
    run.until_training("running")
    kill_worker(run, "train")
    run.until("train", "running", tries=2)
    run.let_end()
    ends_green(run)
    assert run.steps() == list(range(len(run.steps())))


@together(WORKING)
def test_worker_killed_while_copying(run: TrainingRun) -> None:
    """The next try compares bucket and TPU anew and copies what is missing."""
    # What train has not uploaded already takes no time; the last thing that copy asks the bucket for does then.
    metrics = {"object": f"*{run.key.name}/train/attempt-1/output/metrics.json", "method": "GET"}
    run.add_fault("gcs.request", metrics, action="delay", seconds=60)
    run.trigger()
    run.let_end()
    kill_worker(run, "copy")
    ends_green(run)


@together(CELERY)
def test_celery(run: TrainingRun) -> None:
    """A whole run succeeds in a Celery worker that gets its tasks from Redis."""
    run.trigger()
    run.let_end()
    ends_green(run)
    assert "tpu_train_celery" in run.stack.log("worker")


# --- more than the grant has ---


@together(MAPPED)
def test_mapped_group_waits_for_room_of_its_own(run: TrainingRun) -> None:
    """Of three trainings on two devices two run, and the third has its TPU when they end: no failure, no worker held.

    The row has five devices, of which a colleague has three.
    """
    with colleagues(run, 3):
        run.trigger(tier="on-demand")
        two = {"success": 2, "deferred": 1}
        creates = eventually(lambda: run.mapped("one.create"), lambda found: Counter(found) == two, TIMEOUT, POLL)
        eventually(run.starts, lambda found: len(found) == 2, TIMEOUT, POLL)
        waiting = creates.index("deferred")
        log = eventually(lambda: run.log("one.create", of=waiting), lambda found: "held by" in found, TIMEOUT, POLL)
        assert "waiting for room in the grant for on-demand v2-8 in us-central1-f (1 asked and 5 held" in log
        assert run.mapped("one.create")[waiting] == "deferred"
        run.let_end()
        assert set(run.until_over().values()) == {"success"}
        assert run.state == "success"
        assert len(run.starts()) == 3
        nodes = {row["name"].rpartition("/")[2] for row in run.cloud.snapshot()["nodes"]}
        assert not any(name.startswith("tpu-train-mapped") for name in nodes)


# --- in a browser ---


@together(TRAIN)
def test_in_the_browser(run: TrainingRun) -> None:
    """A person logs in, fills in the form, presses Trigger and sees log, usage page, a green grid and the links."""
    trains(run)
    ends_green(run)


@together(TRAIN)
def test_pages(run: TrainingRun) -> None:
    """Airflow lists provider, plugin and connection type, and every field of the form is found by its name."""
    looks_around(run)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "text-for-a-number": ({"seed": "3"}, "seed: '3' is not of type 'integer'"),
    "nothing-for-a-number": ({"seed": None}, "seed: None is not of type 'integer'"),
    "empty-text": ({"script": ""}, "script: '' should be non-empty"),
    "nothing-for-a-text": ({"script": None}, "script: None is not of type 'string'"),
}
TAKEN: dict[str, dict[str, Any]] = {
    "fraction-that-is-whole": {"seed": 3.0},
    "nothing-where-that-is-allowed": {"arguments": None},
}


@together(WORKING)
def test_form(run: TrainingRun) -> None:
    """A value of a wrong type is refused by name, an unknown field by the first task; neither has touched the cloud."""
    for name, (form, message) in REFUSED.items():
        assert message in refusal(replace(run, name=name), form)
    taken = [replace(run, name=name) for name in TAKEN]
    for other in taken:
        other.trigger(**TAKEN[other.name])
    run.trigger(sed=3)
    run.until("check_grant", "failed")
    assert run.resources() == []
    assert run.until_over()["create"] == "upstream_failed"
    for other in taken:
        other.until("check_grant", "success")
        other.let_end()
        ends_green(other)


# --- what all of Airflow needs ---


def test_triggerer_moved_then_killed(runs: ParallelRuns) -> None:
    """The training lives through both: a trigger that moves stops nothing, one that dies is run by the other."""
    runs.quiet()
    run = runs.new(TRAIN, "triggerers")
    run.trigger()
    run.until_training("deferred")
    first = run.triggerer()
    runs.stack.signal(first, signal.SIGSTOP)
    second = eventually(run.triggerer, lambda name: name not in ("", first), TIMEOUT, POLL)
    runs.stack.signal(first, signal.SIGCONT)
    # In most runs Airflow calls on_kill then, not in all; that it has let go is what counts.
    eventually(lambda: run.log("train"), lambda log: "trigger completed" in log, TIMEOUT, POLL)
    runs.stack.kill(second)
    eventually(run.triggerer, lambda name: name == first, TIMEOUT, POLL)
    assert (len(run.alive()), run.deletes()) == (1, {})
    runs.stack.start(second)
    run.let_end()
    ends_green(run)
    assert run.steps() == list(range(len(run.steps())))


def test_scheduler_killed(runs: ParallelRuns) -> None:
    """A scheduler that dies with all its workers stops no training; the next one carries the run to its end."""
    runs.quiet()
    run = runs.new(TRAIN, "scheduler")
    run.trigger()
    run.until_training("deferred")
    runs.stack.kill("scheduler")
    runs.stack.start("scheduler")
    run.let_end()
    ends_green(run)


# --- what the reaper ends, which looks at all runs ---


def test_file_broken(runs: ParallelRuns) -> None:
    """The same holds for a DAG whose file can no longer be loaded; the reaper closes its books."""
    runs.quiet()
    run = runs.new(BROKEN, "file-broken")
    run.trigger()
    run.until_training("deferred")
    (run.stack.dags / f"{BROKEN}.py").write_text("import nothing_of_that_name  # airflow dag\n")
    run.expire()
    assert eventually(run.resources, lambda found: not found, TIMEOUT, POLL) == []
    run.reap()
    run.assert_nothing_left()


def test_file_removed(runs: ParallelRuns) -> None:
    """The reaper takes the TPU of a run whose DAG has been deleted, file and all, and closes its books."""
    runs.quiet()
    run = runs.new(REMOVED, "file-removed")
    run.trigger()
    run.until_training("deferred")
    (run.stack.dags / f"{REMOVED}.py").unlink()
    assert status_of(run.client, f"/api/v2/dags/{REMOVED}", "DELETE") == 204
    run.reap()
    run.assert_nothing_left()
