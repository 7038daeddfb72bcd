"""Whether a night is skipped: by data, settings and code, the code that a script fetches by itself included."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from airflow_tpu.core.model.model import ModelManifest
from airflow_tpu.operators.model import CloudTPUSkipUnchangedOperator
from airflow_tpu.stores.models import ModelStore
from tests.airflow_tpu.attempts import script
from tests.airflow_tpu.cloud_env import FORM, ROOT, CloudEnv, context

CLONES = "import os\nos.system('git clone https://example.org/r.git && cd r && git checkout $TRC_REVISION')\n"


def compare(uri: str, **conf: Any) -> str:
    """Execute the task; returns the fingerprint."""
    task = CloudTPUSkipUnchangedOperator(task_id="changed", conf={**FORM, "script": uri, "model": "digits", **conf})
    return str(task.execute(context()))


def remember(env: CloudEnv, fingerprint: str, version: str = "v1") -> None:
    """Register a version that was trained with a fingerprint."""
    manifest = ModelManifest("digits", version, "", f"{ROOT}/runs/x/attempt-1", fingerprint, {}, {"run_id": version})
    ModelStore(env.storage, ROOT, "digits").register(manifest)


def test_unchanged_code_is_not_trained_again(env: CloudEnv) -> None:
    """A night whose script, data and settings are those of the newest version is skipped; another script is not."""
    remember(env, compare(script(env, "print(1)")))
    with pytest.raises(AirflowSkipException, match="are those of version v1"):
        compare(script(env, "print(1)"))
    compare(script(env, "print(2)"))


def test_script_that_fetches_a_moving_branch_is_trained_again(env: CloudEnv, capfd: pytest.CaptureFixture[str]) -> None:
    """What a clone brings is unknown: the night trains, and says how it can be skipped."""
    uri = script(env, CLONES)
    remember(env, compare(uri))
    compare(uri)
    assert "x.py fetches code whose commit it does not name" in capfd.readouterr().out


def test_named_revision_is_part_of_the_code(env: CloudEnv) -> None:
    """With the revision named the same one is skipped, and another one is trained."""
    uri = script(env, CLONES)
    remember(env, compare(uri, revision="v1.0"))
    with pytest.raises(AirflowSkipException):
        compare(uri, revision="v1.0")
    compare(uri, revision="v1.1")
