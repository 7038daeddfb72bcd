# SPDX-License-Identifier: Apache-2.0
"""What must not be created is refused before anything is, with every reason at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing import BackgroundCloud
from tests.dags.evidence import api_calls, events, names_left, objects

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
VARIANTS = Path(__file__).parent / "files" / "variants.py"


def assert_untouched(cloud: BackgroundCloud, outcome: Any) -> None:
    """The run is red at its first task, and neither the TPU API nor the ledger has seen it."""
    assert outcome.state == "failed"
    assert outcome.tasks["check_grant"] == "failed"
    assert outcome.tasks["create"] == "upstream_failed"
    assert outcome.tries["check_grant"] == 1
    assert api_calls(cloud) == {}
    assert events(cloud, "opened") == []
    assert names_left(cloud) == []


def test_tpu_outside_the_grant(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A type that no row of the grant covers is refused without one call of the API; the nearest rows are named."""
    outcome = run_dag(accelerator_type="v3-8", zone="us-central1-a")
    assert_untouched(cloud, outcome)
    assert "v3-8" in outcome.log
    assert "nothing was created" in outcome.log


def test_run_that_would_outlive_the_grant(cloud: BackgroundCloud, run_dag: Run, monkeypatch: Any) -> None:
    """A grant whose term is over covers nothing."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", "example.yaml")
    outcome = run_dag(accelerator_type="v2-8", zone="us-central1-f", tier="on-demand")
    assert_untouched(cloud, outcome)


def test_all_faults_of_a_form_at_once(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Three wrong fields and a zone that is not granted are four faults of one error, each with what is allowed."""
    wrong = {"script": "../../etc/passwd", "arguments": "'unclosed", "artifacts_uri": "trc-local/runs"}
    outcome = run_dag(accelerator_type="v2-8", zone="us-central1-b", **wrong)
    assert_untouched(cloud, outcome)
    assert "the trigger form has 4 fault(s); nothing was created" in outcome.log
    for field in ("script = ", "arguments = ", "artifacts_uri = ", "zone = "):
        assert field in outcome.log


@pytest.mark.parametrize("script", ["no_such_script.py", "gs://trc-local/no such script.py"])
def test_script_that_is_not_there(cloud: BackgroundCloud, run_dag: Run, script: str) -> None:
    """A missing script is found before a TPU waits for it."""
    outcome = run_dag(script=script)
    assert_untouched(cloud, outcome)
    assert "no_such_script.py" in outcome.log or "no such script.py" in outcome.log


def test_bucket_in_another_region(cloud: BackgroundCloud, run_dag: Run) -> None:
    """Traffic between regions is billed, so a bucket elsewhere is refused, and nothing is created."""
    cloud.call(lambda: cloud.cloud.storage.create_bucket("far-away", "EUROPE-WEST4"))
    outcome = run_dag(artifacts_uri="gs://far-away/runs")
    assert outcome.state == "failed"
    assert outcome.tasks["check_grant"] == "failed"
    assert "EUROPE-WEST4" in outcome.log
    assert [name for name in api_calls(cloud) if "Create" in name] == []


def test_grant_that_others_use_up(cloud: BackgroundCloud, run_dag: Run) -> None:
    """A colleague's TPUs count: with the allowance used up nothing is created and nothing of theirs is touched."""
    from google.cloud import tpu_v2

    parent = "projects/local-project/locations/us-central1-f"
    node = {"accelerator_type": "v2-8", "runtime_version": "tpu-ubuntu2204-base"}
    create = cloud.cloud.service.methods["Tpu/CreateNode"]
    requests = [tpu_v2.CreateNodeRequest(parent=parent, node_id=f"colleague-{n}", node=node) for n in range(5)]
    cloud.call(lambda: [create(request) for request in requests])
    outcome = run_dag(tier="on-demand")
    assert outcome.state == "failed"
    assert "colleague-0" in outcome.log
    assert names_left(cloud) == [f"colleague-{n}" for n in range(5)]


def test_dag_without_the_early_check(cloud: BackgroundCloud, run_dag: Run) -> None:
    """The lease takes its chips from the grant, so a DAG that does not check first creates nothing either."""
    outcome = run_dag("tpu_train_blocking", VARIANTS, accelerator_type="v3-8", zone="us-central1-a")
    assert outcome.state == "failed"
    assert (outcome.tasks["lease"], outcome.tasks["create"]) == ("failed", "upstream_failed")
    assert outcome.tries["lease"] == 1
    assert [name for name in api_calls(cloud) if "Create" in name] == []
    assert events(cloud, "opened") == []
    assert [name for name in objects(cloud) if "/leases/" in name] == []


def test_connection_that_is_not_defined(cloud: BackgroundCloud, run_dag: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log ends with a line for a person, after one try and without one frame of Python."""
    monkeypatch.delenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT")
    outcome = run_dag()
    assert_untouched(cloud, outcome)
    before, last, _ = outcome.log.partition("The task check_grant has failed: ")
    assert last
    assert "Traceback" not in before
    assert "isn't defined in this Airflow" in outcome.log
    assert "Nothing was created. It is not tried again. To do: Correct every field" in outcome.log
    assert "The task verdict has failed: the run has failed: check_grant (failed)" in outcome.log
