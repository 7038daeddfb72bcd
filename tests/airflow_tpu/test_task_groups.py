# SPDX-License-Identifier: Apache-2.0
"""The tasks around a TPU: their ids, their session and their order, in every place of a DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TaskGroup, task, task_group
from airflow.sdk.definitions.param import process_params
from airflow.sdk.exceptions import DuplicateTaskIdFound

from airflow_tpu.errors import ConfigError
from airflow_tpu.operators.artifacts import CloudTPUArtifactsToGCSOperator
from airflow_tpu.operators.base import CloudTPUBaseOperator
from airflow_tpu.operators.provision import INFRASTRUCTURE_RETRIES
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import train_params
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


def test_tasks_carry_no_copy_of_the_form() -> None:
    """The form is the DAG's, and so in every task's context; a task has only what was given to itself."""
    with DAG("with_a_form", schedule=None, params={"script": "mine.py", "zone": "us-central1-f"}) as dag:
        train_in_session(params={"zone": "us-east1-d", "lr": 0.1})
    assert dict(dag.get_task("train").params) == {"zone": "us-east1-d", "lr": 0.1}
    assert dict(dag.get_task("verdict").params) == {}  # the session gives it nothing
    context = process_params(dag, dag.get_task("train"), {"script": "hers.py"}, suppress_exception=False)
    assert context == {"script": "hers.py", "zone": "us-east1-d", "lr": 0.1}


def test_copies_of_the_form_share_its_schemas() -> None:
    """Airflow copies the params of a DAG for each task: what a field may hold is not copied with them."""
    form = train_params()
    assert all(copied.schema is form[name].schema for name, copied in deepcopy(form).items())
    assert all(type(field) is Param for field in form.values())  # Airflow serializes no other class


@pytest.mark.usefixtures("dag")
def test_tasks_share_one_retry_policy() -> None:
    """Its rules are made once for a parse, not for every task."""
    session = train_in_session()
    tasks = [task for task in session.setup.dag.tasks if isinstance(task, CloudTPUBaseOperator)]
    assert len({id(task.retry_policy) for task in tasks}) == 1


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


def branch(session: TPUSession) -> None:
    """Two trainings of which one is taken."""

    @task.branch
    def choose() -> str:
        return "one"

    choose() >> [training("one", session), training("other", session)]


def training(task_id: str, session: TPUSession, **arguments: Any) -> CloudTPUTrainOperator:
    """One training of a session."""
    return CloudTPUTrainOperator(task_id=task_id, **session.arguments, **arguments)


def in_a_row(session: TPUSession) -> None:
    """One after the other, with somebody else's task between them."""
    training("one", session) >> EmptyOperator(task_id="between") >> training("other", session)


def without_order(session: TPUSession) -> None:
    """Two trainings beside one another."""
    training("one", session)
    training("other", session)


def mapped(session: TPUSession) -> None:
    """One training for each of several forms."""
    CloudTPUTrainOperator.partial(task_id="one", session=session.name).expand(conf=[{}, {}])


def in_mapped_group_of_the_session(session: TPUSession) -> None:
    """One training for each value, in a mapped group of the user's own."""

    @task_group(group_id="sweep")
    def one(seed: int) -> None:
        training("one", session, changes={"seed": seed})

    one.expand(seed=[1, 2])


def of_a_session_that_has_ended(_: TPUSession) -> None:
    """The arguments of the session above, after its block."""
    training("one", train_in_session(group_id="inner"))


def without_session(_: TPUSession) -> None:
    """An operator that was not called with the arguments of the session."""
    CloudTPUTrainOperator(task_id="one", conf={})


def copy_of_nothing(session: TPUSession) -> None:
    """A copy that names no training."""
    training("one", session) >> CloudTPUArtifactsToGCSOperator(task_id="copy", training="on", **session.arguments)


def copy_beside_its_training(session: TPUSession) -> None:
    """A copy that comes after nothing."""
    training("one", session)
    CloudTPUArtifactsToGCSOperator(task_id="copy", **session.arguments)


def branch_that_leads_to_both(session: TPUSession) -> None:
    """A branching task above both, and a child of it that is above both too."""

    @task.branch
    def choose() -> str:
        return "both"

    choose() >> EmptyOperator(task_id="both") >> [training("one", session), training("other", session)]


def when_the_first_fails(session: TPUSession) -> None:
    """A training that begins when the one above it has failed."""
    training("one", session) >> training("other", session, trigger_rule="one_failed")


def when_one_of_two_is_done(session: TPUSession) -> None:
    """A training that does not wait for the one above it, if another task above it is faster."""
    [training("one", session), EmptyOperator(task_id="quick")] >> training("other", session, trigger_rule="one_done")


@pytest.mark.parametrize("work", [branch, in_a_row, when_the_first_fails])
@pytest.mark.usefixtures("dag")
def test_trainings_that_never_run_at_once_share_a_tpu(work: Callable[[TPUSession], None]) -> None:
    """One after the other and on branches they are allowed."""
    with tpu_session(conf={}) as session:
        work(session)


REFUSED = {
    without_order: r"trainings = 'big.one, big.other': may run at once on one TPU.*order them with >>.*tpu_session",
    when_one_of_two_is_done: "trainings = 'big.one, big.other': may run at once",
    branch_that_leads_to_both: "trainings = 'big.one, big.other': may run at once",
    mapped: "expand = 'big.one': its mapped instances would share one TPU: map a task group",
    in_mapped_group_of_the_session: "expand = 'big.sweep.one': its mapped instances would share one TPU: map a task",
    of_a_session_that_has_ended: "session = 'big.one': is defined after its session has ended: move it into",
    without_session: r"session = 'big.one': has no session: call it with \*\*session.arguments",
    copy_beside_its_training: "training = 'big.copy': has no training above it: write train >> copy inside.*one",
    copy_of_nothing: "training = 'on': is no training of the session of big.copy.*one",
}


@pytest.mark.parametrize("work", REFUSED)
@pytest.mark.usefixtures("dag")
def test_what_cannot_work_is_refused_when_the_dag_is_parsed(work: Callable[[TPUSession], None]) -> None:
    """The error names both tasks, and what to do."""
    with pytest.raises(ConfigError, match=REFUSED[work]), tpu_session(conf={}, group_id="big") as session:
        work(session)


@pytest.mark.usefixtures("dag")
def test_training_changes_what_is_trained_and_nothing_of_the_tpu() -> None:
    """A type of its own would be another TPU, so it is refused with what may be changed."""
    with tpu_session(conf={"seed": 1, "script": "a.py"}) as session:
        own = training("one", session, changes={"script": "b.py"})
        assert own.asked() == {"seed": 1, "script": "b.py"}
        with pytest.raises(ConfigError, match=r"accelerator_type.*is not what a training may change.*script"):
            training("other", session, changes={"accelerator_type": "v3-8"})
        with pytest.raises(ConfigError, match=r"learning_rate.*belongs in the field arguments: --learning_rate="):
            training("another", session, changes={"learning_rate": 0.1})


@pytest.mark.usefixtures("dag")
def test_tries_of_a_task_are_its_own() -> None:
    """What a DAG author says of one training, or of all tasks of the session, counts; losses of the TPU count apart."""
    with tpu_session(conf={}, pool="tpus", retry_delay=timedelta(minutes=1)) as session:
        train = training("train", session, retries=2)
    assert (train.retries, getattr(train.retry_policy, "script_retries", None)) == (INFRASTRUCTURE_RETRIES + 2, 2)
    assert {task.pool for task in (session.setup, train, session.delete)} == {"tpus"}
    assert {task.retry_delay for task in (session.setup, train, session.delete)} == {timedelta(minutes=1)}
    with tpu_session(conf={}, retries=1) as other:
        train = training("other", other)
    assert (other.setup.retries, other.delete.retries, train.retries) == (1, 1, INFRASTRUCTURE_RETRIES + 1)


def test_default_arguments_of_a_dag_reach_the_script_and_spare_the_tpu() -> None:
    """Tries that the DAG gives to every task do not bound the create and the delete."""
    with DAG("defaults", schedule=None, default_args={"retries": 1, "owner": "me"}) as dag:
        session = train_in_session()
    assert (session.setup.retries, dag.get_task("create").retries, session.delete.retries) == (
        3,
        INFRASTRUCTURE_RETRIES,
        8,
    )
    assert dag.get_task("train").retries == INFRASTRUCTURE_RETRIES + 1


@pytest.mark.usefixtures("dag")
def test_changes_may_be_what_another_task_returns() -> None:
    """They are checked when they are known, by the same rule."""

    @task
    def best() -> dict[str, str]:
        return {"arguments": "--lr 0.1"}

    with tpu_session(conf={"script": "a.py"}) as session:
        train = training("train", session, changes=best())
    assert train.upstream_task_ids == {"best"}
    train.changes = {"arguments": "--lr 0.1"}
    assert train.asked() == {"script": "a.py", "arguments": "--lr 0.1"}
    for found, words in (
        ({"zone": "us-central1-f"}, "zone.*is not what a training may change"),
        (3, "is not a mapping"),
    ):
        train.changes = found
        with pytest.raises(ConfigError, match=words):
            train.asked()
