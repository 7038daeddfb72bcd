# SPDX-License-Identifier: Apache-2.0
"""The newest checkpoint of a run by the bucket, where a script's manifest may hold anything."""

from __future__ import annotations

import json

import pytest

from airflow_tpu.core.run.budget import KILLED_LIMIT
from airflow_tpu.core.run.interruption import SafeCheckpoint
from airflow_tpu.core.run.plan import checkpoints_uri
from airflow_tpu.core.run.result import RunResult, classify_exit
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.training.losses import Ended, newest_checkpoint, spend
from tests.airflow_tpu.attempts import run_context
from tests.airflow_tpu.cloud_env import BUCKET, KEY, CloudEnv, now


def save(env: CloudEnv, work: RunContext, manifest: str) -> None:
    """Put the manifest of a checkpoint of step 7 into the bucket."""
    folder = checkpoints_uri(work.conf, KEY.name).removeprefix(f"gs://{BUCKET}/")
    env.storage.upload(BUCKET, f"{folder}/attempt-1/000000000007.step-7/MANIFEST.json", data=manifest)


def test_manifest_says_when_the_newest_checkpoint_was_saved(env: CloudEnv) -> None:
    """Step and time are those of the manifest."""
    work = run_context()
    save(env, work, json.dumps({"created": 1767225600.5, "step": 7}))
    assert newest_checkpoint(work, "") == SafeCheckpoint(1, 7, 7, 1767225600.5)


NO_TIME = ("1e999", "NaN", "true", "1e300", "-1", '"today"', "null", "[]")


@pytest.mark.parametrize(
    "manifest",
    ["oops", "[1, 2]", "[" * 100_000, "{}", "\x00", '{"created": 1', *(f'{{"created": {text}}}' for text in NO_TIME)],
)
def test_manifest_that_holds_anything_fails_no_training(env: CloudEnv, manifest: str) -> None:
    """The step is known by the name; when it was saved is unknown."""
    work = run_context()
    save(env, work, manifest)
    assert newest_checkpoint(work, "") == SafeCheckpoint(1, 7, 7)


def test_script_that_is_killed_again_and_again_is_not_started_for_ever(env: CloudEnv) -> None:
    """The kernel ends what uses too much memory: after a few tries on a TPU that lives the error says so."""
    work, record, ends = run_context(), env.lease(), []
    for _ in range(KILLED_LIMIT):
        error = classify_exit(RunResult(exit_code=None, signal=9))
        assert error is not None
        _, exhausted = spend(work, record, Ended(KEY.node_id(1), error, now())) or (None, None)
        ends.append(exhausted)
    assert ends[:-1] == [None] * (KILLED_LIMIT - 1)
    assert "no memory left" in str(ends[-1])
