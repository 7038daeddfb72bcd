# SPDX-License-Identifier: Apache-2.0
"""Output that a script writes straight to a bucket counts, and only what this run has written."""

from __future__ import annotations

from airflow_tpu.core.run.job import LastAttempt
from airflow_tpu.lifecycle.connections import Connections
from airflow_tpu.lifecycle.run_context import RunContext
from airflow_tpu.lifecycle.training.bucket_outputs import missing_outputs, written_elsewhere
from tests.airflow_tpu.cloud_env import BUCKET, FORM, KEY, CloudEnv, now

OUT = f"gs://{BUCKET}/exports"


def write(env: CloudEnv, name: str) -> None:
    """Write an object as a script would."""
    env.storage.upload(bucket_name=BUCKET, object_name=f"exports/{name}", data=b"x")


def context(**form: str) -> RunContext:
    """A run with a form."""
    return RunContext(KEY, {**FORM, **form}, Connections())


def test_declared_outputs_are_looked_for_in_the_bucket(env: CloudEnv) -> None:
    """A folder, an object and a pattern; what an earlier run has written does not count."""
    write(env, "old/model.h5")
    write(env, "again/model.h5")
    record = env.runs.update(env.lease(), lambda found: found.next_attempt(LastAttempt(node_id="n-1", at=now())))
    write(env, "again/model.h5")
    write(env, "new/saved_model.pb")
    outputs = (
        f"{OUT}/old",
        f"{OUT}/again",
        f"{OUT}/new/",
        f"{OUT}/n*/*.pb",
        f"{OUT}/new/*.h5",
        f"{OUT}/ne",
        f"{OUT}/x/**",
    )
    missing = missing_outputs(context(outputs="\n".join(outputs)), record)
    assert missing == (f"{OUT}/old", f"{OUT}/new/*.h5", f"{OUT}/ne", f"{OUT}/x/**")


def test_what_the_form_names_and_the_run_has_written_is_found(env: CloudEnv) -> None:
    """An option of the command counts like a declared output; data that were there before do not."""
    write(env, "data/1")
    record = env.runs.update(env.lease(), lambda found: found.next_attempt(LastAttempt(node_id="n-1", at=now())))
    write(env, "model/1")
    found = written_elsewhere(
        context(arguments=f"--data_dir={OUT}/data --model_dir {OUT}/model --log {OUT}/log"), record
    )
    assert [named.start for named in found] == [f"{OUT}/model"]
