# SPDX-License-Identifier: Apache-2.0
"""Trainings of a session: no two share a place, and one that is there is taken only for what was asked for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.core.run.job import ASKED, JobSpec, asked_digest, folder_of, name_on_vm, training_of
from airflow_tpu.stores.grants import load_catalogue
from tests.airflow_tpu.cloud_env import FORM

SESSION = "a-name-of-forty-five-characters-is-0123456789"
TASKS = (
    "train",
    "train_big",
    "train-big",
    "Train",
    "evaluate.on_test_set_of_last_week",
    "evaluate.on_test_set",
    "학습",
)


@given(st.text(min_size=1, max_size=250))
def test_every_task_id_makes_a_directory(task_id: str) -> None:
    """Whatever Airflow allows, the runner takes the name."""
    assert JobSpec(name_on_vm(SESSION[:45], task_id), 1, ("true",)).run_name.startswith(SESSION[:45])


def test_no_two_trainings_share_a_place() -> None:
    """Neither on the TPU VM nor in the bucket, and a readable id stays as it is."""
    names = [name_on_vm("run-0123456789", task) for task in TASKS]
    assert len(set(names)) == len({folder_of("run-0123456789", task) for task in TASKS}) == len(TASKS)
    assert names[0] == "run-0123456789-train"
    assert folder_of("run-0123456789", TASKS[1]) == "run-0123456789/train_big"
    assert not any(one.startswith(f"{other}/") for one, other in itertools.permutations(names, 2))


@pytest.mark.parametrize(
    ("task_id", "session", "name"),
    [("train", "", "train"), ("big.train", "big", "train"), ("sweep.tpu.a.train", "sweep.tpu", "a.train")],
)
def test_name_of_a_training_is_its_task_in_the_session(task_id: str, session: str, name: str) -> None:
    """The prefix of the session is in the name of the run already."""
    assert training_of(task_id, session) == name


CHANGED = {"script": "minimal.py", "arguments": "--steps 1", "seed": 7, "environment": "A=b", "revision": "v2"}


@pytest.mark.parametrize("field", CHANGED)
def test_another_script_argument_or_seed_is_another_training(field: str) -> None:
    """What is trained is in the digest."""
    catalogue = load_catalogue()
    assert field in ASKED
    before, after = RunConf.parse(FORM, catalogue), RunConf.parse({**FORM, field: CHANGED[field]}, catalogue)
    assert asked_digest(before) == asked_digest(RunConf.parse(FORM, catalogue)) != asked_digest(after)


def test_until_when_it_may_train_makes_no_other_training() -> None:
    """Raising the deadline of a run must not end what it trains."""
    catalogue = load_catalogue()
    later = RunConf.parse({**FORM, "deadline_hours": 99, "max_preemptions": 3, "stall_minutes": 7}, catalogue)
    assert asked_digest(later) == asked_digest(RunConf.parse(FORM, catalogue))
