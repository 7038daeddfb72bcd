# SPDX-License-Identifier: Apache-2.0
"""What every DAG file must keep: cheap to parse, and of a shape in which no TPU can leak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import RetryAction

from airflow_tpu.errors import Fault, GrantViolation, TransientError

ROOT = Path(__file__).resolve().parents[2]
DAG_FILES = sorted((ROOT / "dags").glob("*.py"))
HEAVY = ("asyncssh", "grpc", "google.cloud.tpu_v2", "airflow.providers.google.common.hooks", "tensorflow")
PARSE = """
import runpy, sys
runpy.run_path(sys.argv[1])
print([name for name in sys.modules if any(name == heavy or name.startswith(heavy + ".") for heavy in sys.argv[2:])])
"""


def ids(value: Any) -> str:
    """The file's stem as the name of a test case."""
    return Path(value).stem


@pytest.fixture(scope="module")
def bag() -> Any:
    """Every DAG of the repository."""
    from airflow.dag_processing.dagbag import DagBag

    found = DagBag(str(ROOT / "dags"))
    assert found.import_errors == {}
    return found


@pytest.fixture(scope="module")
def train(bag: Any) -> Any:
    """The main job."""
    return bag.dags["tpu_train"]


def below(dag: Any, task_id: str) -> set[str]:
    """Everything that comes after a task."""
    return {task.task_id for task in dag.get_task(task_id).get_flat_relatives(upstream=False)}


@pytest.mark.slow
@pytest.mark.parametrize("file", DAG_FILES, ids=ids)
def test_parsing_imports_nothing_heavy(file: Path) -> None:
    """A DAG file is parsed every few seconds: it loads neither clients nor hooks of the Google provider."""
    done = subprocess.run([sys.executable, "-c", PARSE, str(file), *HEAVY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_dag_has_a_run_timeout(bag: Any) -> None:
    """``dagrun_timeout`` skips teardowns, and with them the delete."""
    assert {dag_id: dag.dagrun_timeout for dag_id, dag in bag.dags.items()} == dict.fromkeys(bag.dags)


def test_no_form_blocks_its_button(bag: Any) -> None:
    """No field is an empty text that may not be null: Airflow's form calls it an error and disables *Trigger*."""
    fields = {f"{dag_id}.{name}": dag.params.get_param(name) for dag_id, dag in bag.dags.items() for name in dag.params}
    assert "tpu_usage_report.month" in fields
    empty = {name: field.schema.get("type") for name, field in fields.items() if field.value in ("", None)}
    assert {name: kind for name, kind in empty.items() if "null" not in (kind or ())} == {}
    assert [name for name, field in fields.items() if field.value == ""] == []


def test_every_dag_and_task_explains_itself(bag: Any) -> None:
    """The UI tells what a DAG and each of its tasks does, in Markdown and without a docstring's own marks."""
    texts = {dag_id: dag.doc_md for dag_id, dag in bag.dags.items()}
    texts |= {f"{dag_id}.{task.task_id}": task.doc_md for dag_id, dag in bag.dags.items() for task in dag.tasks}
    assert [name for name, text in texts.items() if not text] == []
    marks = ("``", "\n:", ":class:", ":meth:", "\n.. ")
    assert [name for name, text in texts.items() if any(mark in text for mark in marks)] == []
    assert texts["tpu_train.lease"].startswith("Take the lease of this DAG run")


def test_lease_is_the_setup_of_the_delete(train: Any) -> None:
    """The setup touches no TPU; a create that is itself the setup would take its teardown with it when it fails."""
    assert train.get_task("lease").is_setup
    assert not train.get_task("create").is_setup
    delete = train.get_task("delete")
    assert delete.is_teardown
    assert delete.upstream_task_ids >= {"lease"}
    assert delete.on_failure_fail_dagrun


def test_teardown_is_tried_again_by_itself(train: Any) -> None:
    """A delete that fails is tried many times, further and further apart."""
    delete = train.get_task("delete")
    assert delete.retries >= 5
    assert delete.retry_exponential_backoff
    assert delete.max_retry_delay is not None


def test_what_is_billed_fails_the_watch_at_once(bag: Any) -> None:
    """A TPU outside the grant fails the first try; a zone that does not answer is asked again."""
    policy = bag.dags["tpu_grant_watch"].get_task("watch").retry_policy
    billed = GrantViolation([Fault("project_id", "p", "stray: no allowance covers it")])
    assert policy.evaluate(billed, 1, 5).action is RetryAction.FAIL
    assert policy.evaluate(TransientError("no answer"), 1, 5).action is RetryAction.RETRY


def test_everything_that_uses_the_tpu_comes_before_its_delete(train: Any) -> None:
    """The delete depends on each of them, directly or not."""
    for task_id in ("create", "train", "copy"):
        assert "delete" in below(train, task_id)


def test_waiting_tasks_survive_the_loss_of_a_worker(train: Any) -> None:
    """Each task that waits has tries to re-attach with, by the policy of the error tree."""
    for task_id in ("create", "train", "copy"):
        task = train.get_task(task_id)
        assert task.retries >= 20
        assert task.retry_policy is not None


def test_verdict_is_the_one_task_by_which_a_run_is_judged(bag: Any) -> None:
    """Everything is above it, and Airflow skips it in no case: a teardown without a setup, whose failure counts."""
    for dag in (bag.dags[dag_id] for dag_id in ("tpu_train", "tpu_nightly_retrain")):
        verdict = dag.get_task("verdict")
        assert [task.task_id for task in dag.leaves] == ["verdict"]
        assert verdict.get_flat_relative_ids(upstream=True) == set(dag.task_ids) - {"verdict"}
        assert (verdict.is_teardown, verdict.on_failure_fail_dagrun) == (True, True)
        assert not any(task.is_setup for task in verdict.upstream_list)


def test_report_runs_whatever_happened(train: Any) -> None:
    """What a failed run has cost is reported as well."""
    report = train.get_task("report")
    assert report.trigger_rule == "all_done"
    assert report.upstream_task_ids == {"delete"}


def test_check_comes_first(train: Any) -> None:
    """Nothing of the session starts before the form and the grant have been checked."""
    assert [task.task_id for task in train.roots] == ["check_grant"]
    assert {"lease", "create", "train", "copy", "delete"} <= below(train, "check_grant")


def test_waits_defer_by_default(train: Any) -> None:
    """A training of days holds no worker slot, whatever Airflow's own default says."""
    for task_id in ("create", "train", "delete"):
        assert train.get_task(task_id).deferrable


def test_nights_are_one_at_a_time(bag: Any) -> None:
    """The nightly retraining has a cron with a time zone, catches nothing up, and never overlaps with itself."""
    night = bag.dags["tpu_nightly_retrain"]
    assert repr(night.schedule).startswith("CronTriggerTimetable(expression='15 2 * * *', timezone='UTC'")
    assert (night.catchup, night.max_active_runs) == (False, 1)
    assert night.params["start_within_hours"] == 4


def test_what_has_a_tpu_has_a_deadline(bag: Any) -> None:
    """A DAG that trains has alerts that take its TPU when it is overdue."""
    assert {dag_id for dag_id, dag in bag.dags.items() if dag.deadline} == {"tpu_train", "tpu_nightly_retrain"}


def test_no_schedule_trains_before_somebody_wants_it(bag: Any) -> None:
    """A scheduled DAG with a TPU starts paused, whatever Airflow's default is; the reaper starts at once."""
    scheduled = {dag_id: dag for dag_id, dag in bag.dags.items() if dag.schedule is not None}
    training = {dag_id for dag_id, dag in scheduled.items() if dag.has_task("train")}
    assert training == {"tpu_nightly_retrain"}
    assert all(scheduled[dag_id].is_paused_upon_creation is True for dag_id in training)
    assert scheduled["tpu_reaper"].is_paused_upon_creation is False
