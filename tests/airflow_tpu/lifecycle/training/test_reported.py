# SPDX-License-Identifier: Apache-2.0
"""Metrics and results that a script wrote, read from the bucket: none of them fails a training that has ended well."""

from __future__ import annotations

import json
import logging

import pytest

from airflow_tpu.errors import NothingProduced
from airflow_tpu.lifecycle.training import reported
from tests.airflow_tpu.cloud_env import BUCKET, CloudEnv

URI = f"gs://{BUCKET}/runs/one/attempt-1"


def write(env: CloudEnv, name: str, text: str) -> None:
    """What the script has left in its output."""
    env.storage.upload(bucket_name=BUCKET, object_name=f"runs/one/attempt-1/output/{name}", data=text.encode())


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ('{"accuracy": 0.9, "f1": NaN, "loss": 1e999}', {"accuracy": 0.9, "f1": "NaN", "loss": "Infinity"}),
        ('{"a": 1}\n{"a": 2}\n', {}),
        ("[1, 2, 3]", {}),
        ("", {}),
        (json.dumps({"confusion": [[1.0] * 1000] * 3000, "accuracy": 0.9}), {"accuracy": 0.9}),
    ],
    ids=["nan", "lines", "list", "empty", "15 MB"],
)
def test_metrics_of_any_kind(env: CloudEnv, text: str, metrics: dict[str, object]) -> None:
    """What is readable and small goes into XCom, nothing else does."""
    write(env, "metrics.json", text)
    assert reported.metrics(env.storage, URI) == metrics


def test_no_metrics(env: CloudEnv) -> None:
    """A script need not write any."""
    assert reported.metrics(env.storage, URI) == {}


def test_why_there_are_no_metrics(env: CloudEnv, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the file, what is wrong with it, and what to write."""
    write(env, "metrics.json", "[1, 2]")
    with caplog.at_level(logging.WARNING):
        reported.metrics(env.storage, URI)
    assert f"{URI}/output/metrics.json holds a list, not an object; write one JSON object there" in caplog.text


@pytest.mark.parametrize("text", ['{"a": 1}\n{"a": 2}\n', "[1, 2]", "not json", "", None])
def test_result_that_cannot_be_compared(env: CloudEnv, text: str | None) -> None:
    """Without a result a model cannot compete, and the error says so."""
    if text is not None:
        write(env, "result.json", text)
    with pytest.raises(NothingProduced, match=r"result\.json"):
        reported.result(env.storage, URI)


def test_result_of_15_megabytes(env: CloudEnv) -> None:
    """Metrics and baseline decide and are kept; a large neighbour stays in the bucket."""
    large = [[1.0] * 1000] * 3000
    decisive = {"metrics": {"accuracy": {"value": 0.9}}, "baseline": {"uri": "gs://b/x", "metrics": {}}, "steps": 7}
    write(env, "result.json", json.dumps({**decisive, "confusion": large}))
    assert reported.result(env.storage, URI) == decisive
