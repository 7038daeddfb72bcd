"""The tasks around a TPU: their ids, their session and their order, in every place of a DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup, task_group
from airflow.sdk.exceptions import DuplicateTaskIdFound

from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.task_groups import TPUSession, tpu_session

TASKS = ("lease", "create", "train", "delete", "verdict")


def train_in_session(**arguments: Any) -> TPUSession:
    """A session with one training."""
    with tpu_session(conf={}, **arguments) as session:
        CloudTPUTrainOperator(task_id="train", **session.arguments)
    return session


@pytest.fixture
def dag() -> Iterator[DAG]:
    """The DAG that the test defines tasks in."""
    with DAG("session_shapes", schedule=None) as found:
        yield found


def in_group() -> TPUSession:
    """A session without a name in a task group."""
    with TaskGroup("nightly"):
        return train_in_session()


def in_mapped_group() -> TPUSession:
    """A session for each value of a list."""
    made: list[TPUSession] = []

    @task_group(group_id="sweep")
    def one(seed: int) -> None:
        with tpu_session(conf={"seed": seed}) as session:
            CloudTPUTrainOperator(task_id="train", **session.arguments)
        made.append(session)

    one.expand(seed=[1, 2])
    return made[0]


def in_session() -> TPUSession:
    """A second TPU while the first one is there."""
    with tpu_session(conf={}):
        return train_in_session(group_id="big")


PLACES: dict[str, Callable[[], TPUSession]] = {
    "": train_in_session,
    "big": lambda: train_in_session(group_id="big"),
    "nightly": in_group,
    "sweep": in_mapped_group,
}


@pytest.mark.parametrize("name", PLACES)
def test_session_has_the_name_with_which_its_tasks_begin(dag: DAG, name: str) -> None:
    """Every task of it has the prefix and knows the session; without one the ids are those of the main job."""
    session = PLACES[name]()
    prefix = f"{name}." if name else ""
    assert session.name == name
    assert {task.task_id for task in dag.tasks} == {f"{prefix}{task}" for task in TASKS}
    assert {getattr(task, "session", name) for task in dag.tasks} == {name}


@pytest.mark.parametrize("name", PLACES)
def test_order_is_the_same_in_every_place(dag: DAG, name: str) -> None:
    """The lease is the setup of the delete, the work lies between, and the verdict is below everything."""
    session = PLACES[name]()
    inner = [dag.get_task(f"{name}.{task}".lstrip(".")) for task in ("create", "train")]
    order = [session.setup, *inner, session.delete, session.verdict]
    for before, after in pairwise(order):
        assert after.task_id in before.downstream_task_ids
    assert (session.setup.is_setup, session.delete.is_teardown) == (True, True)
    assert session.verdict.get_flat_relative_ids(upstream=True) == set(dag.task_ids) - {session.verdict.task_id}
    assert [task.task_id for task in dag.leaves] == [session.verdict.task_id]


@pytest.mark.usefixtures("dag")
def test_sessions_without_a_name_are_numbered_as_airflow_numbers_tasks() -> None:
    """The first one keeps its ids; one in another session gets a TPU of its own too, and ends before that one."""
    assert [train_in_session().name for _ in range(3)] == ["", "tpu__1", "tpu__2"]
    assert in_group().name == "nightly"
    inner = in_session()
    assert inner.name == "tpu__3.big"
    assert inner.verdict.downstream_task_ids == {"tpu__3.delete"}


@pytest.mark.parametrize("name", ["", "big"])
def test_groups_and_tasks_of_others_lie_in_the_session(dag: DAG, name: str) -> None:
    """A user's own group has the prefix of the session, and its tasks come before the delete."""
    with tpu_session(conf={}, group_id=name) as session, TaskGroup("evaluate") as group:
        EmptyOperator(task_id="first") >> EmptyOperator(task_id="second")
    prefix = f"{name}." if name else ""
    assert group.group_id == f"{prefix}evaluate"
    assert dag.get_task(f"{prefix}evaluate.first").upstream_task_ids == {f"{prefix}create"}
    assert dag.get_task(f"{prefix}evaluate.second").downstream_task_ids == {session.delete.task_id}


def test_session_without_work_deletes_what_it_has_created(dag: DAG) -> None:
    """An empty block makes a TPU and takes it away again."""
    with tpu_session(conf={}) as session:
        pass
    assert dag.get_task("create").downstream_task_ids == {"delete"}
    assert session.delete.upstream_task_ids == {"lease", "create"}


@pytest.mark.usefixtures("dag")
def test_two_sessions_of_one_name_are_refused() -> None:
    """Airflow names the id that is there twice when it parses the DAG."""
    train_in_session(group_id="big")
    with pytest.raises(DuplicateTaskIdFound, match="group_id 'big' has already been added"):
        train_in_session(group_id="big")
