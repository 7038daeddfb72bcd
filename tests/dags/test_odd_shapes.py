# SPDX-License-Identifier: Apache-2.0
"""Sessions in shapes that nobody has drawn: what a sceptical author of DAGs tries, each run to its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu import protocol
from airflow_tpu.clients.airflow_state import MARKED_KEY
from localcloud.testing import BackgroundCloud, eventually
from tests.dags.evidence import check_books, events, names_left, object_names, upload

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
FILE = Path(__file__).parent / "files" / "odd_shapes.py"
FAILS = "raise SystemExit(3)\n"


def test_nothing_is_asked_for_where_nothing_is_wanted(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A short circuit above a session skips all of it, also the delete, and the run is green."""
    outcome = run_dag("nothing_wanted", FILE)
    assert outcome.state == "success", outcome.log[-4000:]
    assert {name for name, state in outcome.tasks.items() if state == "skipped"} == {
        "lease",
        "create",
        "train",
        "delete",
    }
    assert events(cloud, "opened") == []


def test_training_that_is_skipped_leaves_no_tpu(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A short circuit inside a session skips training and copy; the TPU that was made for them goes."""
    outcome = run_dag("nothing_trained", FILE, provisioning="node")
    assert outcome.state == "success", outcome.log[-4000:]
    assert (outcome.tasks["train"], outcome.tasks["copy"], outcome.tasks["delete"]) == ("skipped", "skipped", "success")
    check_books(cloud)
    assert names_left(cloud) == []


def test_setups_of_ones_own_around_and_inside_a_session(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The teardowns of others run after a failed training too, and none of them turns the run green."""
    outcome = run_dag("own_setups", FILE, script=upload(cloud, "scripts/bad.py", FAILS), provisioning="node")
    assert {name: state for name, state in outcome.tasks.items() if state != "success"} == {
        "train": "failed",
        "verdict": "failed",
    }, outcome.log[-4000:]
    assert outcome.state == "failed"
    assert words_of_people("own_setups", outcome.run_id) == {}
    assert names_left(cloud) == []


@pytest.mark.parametrize("count", [2, 0])
def test_mapped_sessions_deep_in_groups(cloud: BackgroundCloud, run_dag: Run, count: int) -> None:
    """Each value has a TPU, also below groups of others; no value is no TPU and no failure."""
    outcome = run_dag("deep_in_groups", FILE, arguments=str(count), provisioning="node")
    assert (outcome.state, outcome.tasks["after"]) == ("success", "success"), outcome.log[-4000:]
    assert len({event["run"] for event in events(cloud, "opened")}) == count
    assert {event["session"] for event in events(cloud, "opened")} <= {"week.day.one.tpu"}
    assert names_left(cloud) == []


FLAKY = """
import os
raise SystemExit(0 if os.environ["TRC_ATTEMPT"] == "2" else 3)
"""


def test_script_that_fails_once_is_tried_again(cloud: BackgroundCloud, run_dag: Run) -> None:
    """With ``retries=1`` of its training: a second attempt on the same TPU, and the run is green."""
    outcome = run_dag("tried_again", FILE, script=upload(cloud, "scripts/flaky.py", FLAKY), provisioning="node")
    assert (outcome.state, outcome.tries["train"]) == ("success", 2), outcome.log[-4000:]
    assert len(events(cloud, "opened")) == 1
    assert "It is tried again" in outcome.log


def test_script_that_always_fails_is_given_up(cloud: BackgroundCloud, run_dag: Run) -> None:
    """After as many tries as the task says, whatever the budget of preemptions."""
    outcome = run_dag("tried_again", FILE, script=upload(cloud, "scripts/bad.py", FAILS), provisioning="node")
    assert (outcome.state, outcome.tries["train"]) == ("failed", 2), outcome.log[-4000:]
    assert names_left(cloud) == []


SECOND_WORKS = """
import os, pathlib, sys
if sys.argv[1:] != ["second"]:
    raise SystemExit(3)
pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "done.txt").write_text("second")
"""


def test_second_training_begins_after_a_failed_first(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Where its trigger rule says so; on the same TPU, and the run is red for the first."""
    script = upload(cloud, "scripts/second.py", SECOND_WORKS)
    outcome = run_dag("in_a_row", FILE, script=script, provisioning="node")
    states = [outcome.tasks[name] for name in ("first", "second", "copy", "verdict")]
    assert states == ["failed", "success", "success", "failed"], outcome.log[-4000:]
    assert (outcome.state, len(events(cloud, "opened"))) == ("failed", 1)


TWO_PARTS = """
import os, pathlib, sys, time
part, resume = (sys.argv[1:] or ["first"])[0], os.environ["TRC_RESUME"]
print(part, "attempt", os.environ["TRC_ATTEMPT"], "resumes" if resume else "begins", flush=True)
if part == "second":
    note = pathlib.Path(os.environ["TRC_CHECKPOINT_DIR"], "note.txt")
    if not resume:
        note.write_text("saved by the second")
    while os.environ["TRC_ATTEMPT"] == "1" and os.environ["TRC_DATA_URI"] != "gs://trc-local/short":
        time.sleep(0.1)
    print("found:", note.read_text(), flush=True)
pathlib.Path(os.environ["TRC_OUTPUT_DIR"], "done.txt").write_text(part)
"""
"""The first attempt of the second part waits until its TPU is taken away, unless it is told to be short."""
SAFE = re.compile(f"/second/checkpoints/.*/{protocol.CHECKPOINT_MANIFEST}$")


@contextmanager
def beside(action: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread while the block runs."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(action)
        yield
        done.result()


def take_tpu(cloud: BackgroundCloud) -> None:
    """Take the one TPU away that there is."""
    cloud.preempt(next(name for name in names_left(cloud) if name.endswith("-1")))


def assert_first_ran_once(cloud: BackgroundCloud, outcome: Any) -> None:
    """One attempt and one try of the first training; two TPUs, both closed, nothing left."""
    assert outcome.state == "success", outcome.log[-4000:]
    assert (outcome.tries["first"], outcome.log.count("first attempt")) == (1, 1)
    assert outcome.xcom["first"]["attempt"] == 1
    assert [event["end_reason"] for event in events(cloud, "closed")] == ["preempted", "finished"]
    check_books(cloud)
    assert names_left(cloud) == []


def test_preemption_in_the_second_of_two_trainings(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The second one resumes from its own checkpoint on a new TPU; the first one does not run again."""

    def when_safe() -> None:
        eventually(lambda: any(map(SAFE.search, object_names(cloud))), bool)
        take_tpu(cloud)

    with beside(when_safe):
        script = upload(cloud, "scripts/parts.py", TWO_PARTS)
        outcome = run_dag("in_a_row", FILE, script=script, provisioning="node")
    assert_first_ran_once(cloud, outcome)
    assert "second attempt 2 resumes" in outcome.log
    assert "found: saved by the second" in outcome.log
    assert outcome.xcom["second"]["attempt"] == 2


def test_preemption_between_two_trainings(
    cloud: BackgroundCloud, run_dag: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins on a new TPU, in its first try; the first one does not run again."""
    monkeypatch.setenv("TEST_ODD_SHAPES_BETWEEN", str(tmp_path))

    def between() -> None:
        eventually((tmp_path / "here").exists, bool)
        take_tpu(cloud)
        (tmp_path / "may-end").touch()

    with beside(between):
        script = upload(cloud, "scripts/parts.py", TWO_PARTS)
        outcome = run_dag("in_a_row", FILE, script=script, provisioning="node", data_uri="gs://trc-local/short")
    assert_first_ran_once(cloud, outcome)
    assert "second attempt 1 begins" in outcome.log
    assert outcome.tries["second"] == 1


def test_run_that_a_person_marks_failed_while_nothing_runs(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A training waits for its next try: Airflow skips all that was to come, the TPU goes, and the run is red."""
    with beside(lambda: mark("waits_an_hour", "failed", waiting="up_for_retry")):
        script = upload(cloud, "scripts/bad.py", FAILS)
        outcome = run_dag("waits_an_hour", FILE, script=script, provisioning="node")
    assert (outcome.tasks["train"], outcome.tasks["afterwards"]) == ("skipped", "skipped"), outcome.log[-4000:]
    assert (outcome.tasks["delete"], outcome.tasks["verdict"], outcome.state) == ("success", "failed", "failed")
    assert "a person has marked the DAG run failed" in outcome.log
    assert words_of_people("waits_an_hour", outcome.run_id) == {"lease": "failed"}
    mark("waits_an_hour", "success", waiting="failed")  # the verdict is
    assert words_of_people("waits_an_hour", outcome.run_id) == {"lease": "success"}
    check_books(cloud)
    assert names_left(cloud) == []


def mark(dag_id: str, state: str, waiting: str) -> None:
    """Mark the DAG run in which a task is in a certain state, as Airflow's API server does it."""
    from airflow.api_fastapi.core_api.datamodels.dag_run import DagRunMutableStates
    from airflow.api_fastapi.core_api.services.public.dag_run import patch_dag_run_state
    from airflow.models.dagrun import DagRun
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(TaskInstance.run_id).where(TaskInstance.dag_id == dag_id, TaskInstance.state == waiting)

    def found() -> str | None:
        with create_session() as session:
            return session.scalar(query)

    run_id = eventually(found, bool, poll=0.5)
    with create_session() as session:
        dag = SerializedDagModel.get_dag(dag_id, session=session)
        dag_run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
        assert dag is not None
        assert dag_run is not None
        patch_dag_run_state(dag=dag, dag_run=dag_run, state=DagRunMutableStates(state), session=session)


def words_of_people(dag_id: str, run_id: str) -> dict[str, str]:
    """What is remembered of people's words on a DAG run, by the task at which it is kept."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(XComModel.task_id, XComModel.value).where(
        XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.key == MARKED_KEY
    )
    with create_session() as session:
        return {task_id: value for task_id, value in session.execute(query)}
