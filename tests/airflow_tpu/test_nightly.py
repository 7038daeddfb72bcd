# SPDX-License-Identifier: Apache-2.0
"""The DAG of a model's nightly retraining, made from a run and a metric."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import AssetAlias

from airflow_tpu.errors import ConfigError
from airflow_tpu.nightly import nightly_dag
from airflow_tpu.operators.model import CloudTPUPromoteModelOperator
from airflow_tpu.tpu_run import TPURun


def test_the_run_is_the_form_of_the_dag() -> None:
    """Fields are shown as the form takes them, lists and mappings too; the window is four hours unless the run says."""
    run = TPURun(model="big-speech", script="a.py", arguments=["--lr", 0.1, "a b"], environment={"A": "1", "B": "x y"})
    dag = nightly_dag(run, schedule="0 3 * * *", metric="loss")
    assert dag.dag_id == "tpu_nightly_big_speech"
    shown = {name: dag.params[name] for name in ("model", "arguments", "environment", "start_within_hours")}
    assert shown == {
        "model": "big-speech",
        "arguments": "--lr 0.1 'a b'",
        "environment": "A=1\nB=x y",
        "start_within_hours": 4,
    }
    assert nightly_dag({**run, "start_within_hours": 1}, schedule=None, metric="loss").params["start_within_hours"] == 1
    assert "`tpu-model-big-speech`" in str(dag.doc_md)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"metric": " "}, "metric = ' ': is no name of a metric"),
        ({"higher_is_better": "False"}, "higher_is_better = 'False': is not True, False or None"),
        ({"min_improvement": "1%"}, "min_improvement = '1%': is no number in the unit of the metric"),
        ({"min_improvement": float("nan")}, "min_improvement = nan"),
        ({"keep_versions": -1}, r"keep_versions = -1: is no whole number from 0 \(keep all\) on"),
        ({"keep_versions": 2.5}, "keep_versions = 2.5"),
    ],
)
def test_what_cannot_decide_is_refused_before_a_night_is_trained(value: dict[str, Any], words: str) -> None:
    """The import of the DAG fails, with the value and what is allowed."""
    with pytest.raises(ConfigError, match=words):
        nightly_dag(TPURun(model="speech", script="a.py"), schedule=None, **{"metric": "loss", **value})


def test_the_metric_reaches_the_promotion() -> None:
    """Direction, least gain and number of versions are those of the call; the asset is that of the promoted model."""
    dag = nightly_dag(
        TPURun(model="speech", script="a.py"),
        schedule=None,
        metric="loss",
        higher_is_better=False,
        min_improvement=0.1,
        keep_versions=3,
    )
    promote = dag.get_task("promote")
    assert isinstance(promote, CloudTPUPromoteModelOperator)
    assert (promote.bar.metric, promote.bar.higher_is_better, promote.bar.min_improvement) == ("loss", False, 0.1)
    assert (promote.keep_versions, list(promote.outlets)) == (3, [AssetAlias("tpu-models")])


@pytest.mark.parametrize("run", [TPURun(script="a.py"), TPURun(script="a.py", model="Speech")])
def test_a_run_without_a_model_is_no_nightly_retraining(run: TPURun) -> None:
    """Versions compete under a name: without a good one the import of the DAG fails."""
    with pytest.raises(ConfigError, match=r"model = .*lower-case"):
        nightly_dag(run, schedule=None, metric="loss")


def test_an_unknown_field_fails_the_import() -> None:
    """As in every form."""
    with pytest.raises(ConfigError, match="in the field arguments: --lr="):
        nightly_dag(TPURun(model="speech", lr=1), schedule=None, metric="loss")  # type: ignore[typeddict-unknown-key]
