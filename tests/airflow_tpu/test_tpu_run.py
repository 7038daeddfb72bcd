# SPDX-License-Identifier: Apache-2.0
"""A run written in Python."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from airflow.sdk import DAG, Context, task

from airflow_tpu.core.request.run_conf import RunConf
from airflow_tpu.errors import ConfigError
from airflow_tpu.operators.run import CloudTPUTrainOperator
from airflow_tpu.params import form_run, train_params
from airflow_tpu.stores.grants import load_catalogue
from airflow_tpu.task_groups import tpu_session
from airflow_tpu.tpu_run import Conf, TPURun

RUN = TPURun(
    script="{{ params.script }}",
    seed="{{ params.seed }}",
    arguments=["--lr", "{{ params.lr }}", 600],
    environment={"NIGHT": "{{ ds }}"},
    deadline_hours=6,
)


def rendered(conf: Conf, **names: Any) -> dict[str, Any]:
    """What a task finds of its ``conf`` when it runs."""
    operator = CloudTPUTrainOperator(task_id="train", conf=conf)
    operator.render_template_fields(cast(Context, names))
    return dict(operator.conf)


def test_every_text_may_hold_templates() -> None:
    """Templates are rendered in fields, lists and mappings; the rest stays, and all of it is JSON."""
    found = rendered(RUN, params={"script": "a.py", "seed": 3, "lr": 0.01}, ds="2026-11-28")
    assert found == {
        "script": "a.py",
        "seed": "3",
        "arguments": ["--lr", "0.01", 600],
        "environment": {"NIGHT": "2026-11-28"},
        "deadline_hours": 6,
    }
    assert json.loads(json.dumps(found)) == found


def test_a_form_with_a_parameter_of_its_own() -> None:
    """What the form says, whatever its type, and a field that is made of the DAG's own parameter."""
    said = {name: param.resolve() for name, param in train_params(seed=0, internal_ips=False).items()}
    typed = {**said, "environment": "A=1\nB=x {{ ds }}", "revision": None}
    found = rendered(form_run(arguments="--lr={{ params.lr }}"), params={**typed, "lr": 0.01})
    catalogue = load_catalogue()
    assert RunConf.parse(found, catalogue) == RunConf.parse({**typed, "arguments": "--lr=0.01"}, catalogue)


def test_a_run_with_another_seed() -> None:
    """A run is built on another one, and the first stays as it was."""
    other: TPURun = {**RUN, "seed": 2}
    assert (other["seed"], other["script"], RUN["seed"]) == (2, RUN["script"], "{{ params.seed }}")


def test_wrong_names_and_types_are_seen_by_a_type_checker_and_when_the_dag_is_parsed() -> None:
    """The checker refuses them in the editor (an unused ``ignore`` fails the build), the import names the place."""
    wrong = TPURun(script="a.py", learning_rate=0.1, dedline_hours=6)  # type: ignore[typeddict-unknown-key]
    TPURun(script=7)  # type: ignore[typeddict-item]
    with pytest.raises(ConfigError) as caught, DAG("wrong"), tpu_session(conf=wrong):
        pytest.fail("a session was made of it")
    option, typing_error = caught.value.faults
    assert "in the field arguments: --learning_rate=..." in option.problem
    assert typing_error.nearest == "deadline_hours"


def test_what_another_task_returns_is_a_field() -> None:
    """A value that is known when the task runs is typed, makes its task come first, and stays out of the parse."""

    @task
    def choose() -> str:
        return "a.py"

    with DAG("later"):
        train = CloudTPUTrainOperator(task_id="train", conf=TPURun(script=choose(), arguments=["--a", choose()]))
        whole = CloudTPUTrainOperator(task_id="whole", conf=choose())
    assert train.upstream_task_ids == {"choose", "choose__1"}
    assert whole.upstream_task_ids == {"choose__2"}
