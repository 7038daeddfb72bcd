# SPDX-License-Identifier: Apache-2.0
"""The same form by every way in: what Airflow refuses, what it takes, and what the first task says of that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.app import create_app, purge_cached_app
from airflow.dag_processing.dagbag import DagBag
from airflow.models import DagRun
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.session import create_session
from fastapi.testclient import TestClient

from tests.airflow_tpu.ui.rights import bearer
from tests.dags.conftest import BUNDLES
from tests.dags.evidence import type_airflow
from tests.dags.files.ways_in import FORMS

pytestmark = pytest.mark.slow

REFUSED = {
    "number-as-text": "seed: '3' is not of type 'integer'",
    "empty-number": "seed: '' is not of type 'integer'",
    "no-number": "seed: None is not of type 'integer'",
    "empty-text": "script: '' should be non-empty",
}
TAKEN = set(FORMS) - set(REFUSED)
STARTER = Path(__file__).parent / "files" / "ways_in.py"


@pytest.fixture(scope="module", autouse=True)
def known(database: None) -> Iterator[None]:
    """Airflow has read the DAG files."""
    with pytest.MonkeyPatch.context() as patch:
        # Long enough for the algorithm that Airflow signs tokens with; its own random default is not, and warns.
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "only for these tests, " * 4)
        patch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(BUNDLES))
        type_airflow("dags", "reserialize")
        yield


def started(prefix: str) -> dict[str, dict[str, Any]]:
    """Form of each run of the training DAG that was started one way, as Airflow keeps it."""
    with create_session() as session:
        runs = session.query(DagRun.run_id, DagRun.conf).filter(DagRun.dag_id == "tpu_train").all()
    return {name.removeprefix(prefix): conf for name, conf in runs if name.startswith(prefix)}


def test_rest() -> None:
    """A refusal of the REST API names field and value, and starts nothing."""
    with TestClient(create_app(apps="core"), base_url="http://localhost") as client:
        answers = {
            name: client.post(
                "/api/v2/dags/tpu_train/dagRuns",
                json={"dag_run_id": f"rest-{name}", "logical_date": None, "conf": form},
                headers=bearer("ADMIN"),
            )
            for name, form in FORMS.items()
        }
    purge_cached_app()
    assert {name: answer.status_code for name, answer in answers.items()} == {
        name: 400 if name in REFUSED else 200 for name in FORMS
    }
    for name, message in REFUSED.items():
        assert message in answers[name].json()["detail"]
    assert started("rest-") == {name: FORMS[name] for name in TAKEN}


def test_command_line() -> None:
    """The command line refuses the same, in the same words."""
    for name, form in FORMS.items():
        trigger = ("dags", "trigger", "tpu_train", "--run-id", f"cli-{name}", "--conf", json.dumps(form))
        if name in REFUSED:
            with pytest.raises(ParamValidationError, match=REFUSED[name]):
                type_airflow(*trigger)
        else:
            type_airflow(*trigger)
    assert started("cli-") == {name: FORMS[name] for name in TAKEN}


def test_another_dag(capfd: pytest.CaptureFixture[str]) -> None:
    """A task that starts a training with a wrong form fails itself, says why in its log, and starts nothing."""
    result = DagBag(str(STARTER)).dags["starts_trainings"].test()
    states = {task.task_id: str(task.state) for task in result.get_task_instances()}
    assert states == {name: "failed" if name in REFUSED else "success" for name in FORMS}
    log = capfd.readouterr().out
    assert [message for message in REFUSED.values() if message not in log] == []
    assert started("operator-") == {name: FORMS[name] for name in TAKEN}
