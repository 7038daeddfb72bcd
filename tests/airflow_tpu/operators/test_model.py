# SPDX-License-Identifier: Apache-2.0
"""Whether a night is skipped: by data, settings and code, the code that a script fetches by itself included."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from airflow_tpu.core.model.model import ModelManifest
from airflow_tpu.core.model.turn import Turn
from airflow_tpu.errors import ModelBusy
from airflow_tpu.operators.model import CloudTPUSkipUnchangedOperator
from airflow_tpu.stores.models import ModelStore
from tests.airflow_tpu.attempts import script
from tests.airflow_tpu.cloud_env import FORM, KEY, ROOT, CloudEnv, context, now

CLONES = "import os\nos.system('git clone https://example.org/r.git && cd r && git checkout $TRC_REVISION')\n"


def compare(uri: str, night: dt.datetime | None = None, **conf: Any) -> str:
    """Execute the task, of a run of a date perhaps; returns the fingerprint."""
    task = CloudTPUSkipUnchangedOperator(task_id="changed", conf={**FORM, "script": uri, "model": "digits", **conf})
    found = context()
    cast(Any, found["dag_run"]).logical_date = night
    return str(task.execute(found))


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


NIGHTS = [dt.datetime(2026, 11, day, 2, 15, tzinfo=dt.UTC) for day in (24, 25)]


@pytest.mark.parametrize(
    ("text", "conf"),
    [
        ("import os\nprint(os.environ['TRC_LOGICAL_DATE'])\n", {}),
        ("print(1)", {"arguments": "--date $TRC_LOGICAL_DATE"}),
        ("print(1)", {"arguments": "--date {{ ds }}"}),
    ],
)
def test_nights_with_data_of_their_own_are_all_trained(env: CloudEnv, text: str, conf: dict[str, str]) -> None:
    """A script that asks for its date, or is given it, is trained for another date, and once for each."""
    uri = script(env, text)
    remember(env, compare(uri, NIGHTS[0], **conf))
    with pytest.raises(AirflowSkipException):
        compare(uri, NIGHTS[0], **conf)
    compare(uri, NIGHTS[1], **conf)


def test_a_date_that_nothing_reads_trains_nothing_again(env: CloudEnv) -> None:
    """The next night has the same data, code and settings."""
    uri = script(env, "print(1)")
    remember(env, compare(uri, NIGHTS[0]))
    with pytest.raises(AirflowSkipException):
        compare(uri, NIGHTS[1])


def test_a_model_is_trained_by_one_run_at_a_time(env: CloudEnv) -> None:
    """A run waits while another Airflow's has its turn, and takes the turn when that has expired; its own it keeps."""
    store, uri = ModelStore(env.storage, ROOT, "digits"), script(env, "print(1)")
    held = Turn("other", KEY.dag_id, KEY.run_id, now() + dt.timedelta(hours=1))
    store.take_turn(held, lambda other: False)
    with pytest.raises(ModelBusy, match=r"waits until that one is over") as caught:
        compare(uri)
    assert KEY.run_id in str(caught.value)
    store.take_turn(Turn("other", KEY.dag_id, KEY.run_id, now() - dt.timedelta(hours=1)), lambda other: False)
    compare(uri)
    compare(uri)
    with pytest.raises(ModelBusy):
        store.take_turn(held, lambda other: False)
