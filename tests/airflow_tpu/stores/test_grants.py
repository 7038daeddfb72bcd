# SPDX-License-Identifier: Apache-2.0
"""The grant comes from a file, an Airflow Variable or a bucket; wherever it is, a wrong one creates nothing."""

from __future__ import annotations

import pytest

from airflow_tpu import settings
from airflow_tpu.core.grant.grant import Grant
from airflow_tpu.errors import GrantError, GrantUnknown
from airflow_tpu.stores.grants import grant_at_parse, load_grant
from tests.airflow_tpu.cloud_env import BUCKET, INCLUDE, CloudEnv

TEXT = (INCLUDE / "grants" / "local.yaml").read_text(encoding="utf-8")
URI = f"gs://{BUCKET}/grants/mine.yaml"


def put(env: CloudEnv, text: str) -> None:
    """Write the grant into the bucket."""
    env.storage.upload(bucket_name=BUCKET, object_name="grants/mine.yaml", data=text)


def use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Name the grant as airflow.cfg does."""
    monkeypatch.setenv("AIRFLOW__AIRFLOW_TPU__GRANT", name)


def test_grant_in_a_bucket(env: CloudEnv, grant: Grant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is read through the Google connection, each time anew."""
    put(env, TEXT)
    use(monkeypatch, URI)
    assert load_grant() == grant
    put(env, f"{TEXT}\nprefix: elsewhere\n")
    assert load_grant(storage=env.storage).prefix == "elsewhere"


def test_grant_in_a_variable(env: CloudEnv, grant: Grant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same YAML as text of an Airflow Variable."""
    monkeypatch.setenv("AIRFLOW_VAR_TRC_GRANT", TEXT)
    use(monkeypatch, "variable:trc_grant")
    assert load_grant() == grant


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"gs://{BUCKET}/grants/none.yaml", "does not exist"),
        ("gs://no-such-bucket/grant.yaml", "does not exist"),
        ("variable:nobody", "names no Airflow Variable"),
        ("none.yaml", "is not a file of include/grants; allowed: .*local.yaml"),
        ("../catalogue/prices.csv", "is not a file of include/grants"),
        ("/etc/passwd", "is not a file of include/grants"),
    ],
)
def test_missing_grant_is_unknown(env: CloudEnv, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    """Each kind of missing grant is named; a path never leaves include/grants."""
    monkeypatch.setenv("AIRFLOW_VAR_NOBODY", " ")
    with pytest.raises(GrantUnknown, match=said):
        load_grant(name)


def test_grant_that_may_not_be_read_is_unknown(env: CloudEnv) -> None:
    """A refusal by the bucket is reported as one."""
    put(env, TEXT)
    env.cloud.add_fault("gcs.request", {"object": "grants/mine.yaml"}, times=9, action="403")
    with pytest.raises(GrantUnknown, match="cannot be read"):
        load_grant(URI, env.storage)


@pytest.mark.parametrize(("text", "error"), [("a: [", GrantUnknown), ("project_id: 5", GrantError), ("", GrantError)])
def test_wrong_grant_says_what_is_wrong(env: CloudEnv, text: str, error: type[Exception]) -> None:
    """What is not YAML, or not a grant, is refused with the faults."""
    put(env, text)
    with pytest.raises(error):
        load_grant(URI, env.storage)


@pytest.mark.parametrize("name", [URI, "variable:trc_grant", "none.yaml"])
def test_parsing_a_dag_asks_nobody(env: CloudEnv, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A form takes the grant from a file, also for an object of that name: a DAG file is parsed every few seconds."""
    monkeypatch.setenv("AIRFLOW_VAR_TRC_GRANT", TEXT)
    put(env, TEXT)
    use(monkeypatch, name)
    assert grant_at_parse() is None
    use(monkeypatch, "local.yaml")
    assert grant_at_parse() == load_grant("local.yaml")
    assert settings.grant_name() == "local.yaml"
    use(monkeypatch, f"gs://{BUCKET}/somewhere/local.yaml")
    assert grant_at_parse() == load_grant("local.yaml")
