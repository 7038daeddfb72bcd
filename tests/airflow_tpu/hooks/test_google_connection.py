# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a connection to Google is an error of ours that says what to correct."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_tpu.errors import AccessDenied, ConfigError, Retry
from airflow_tpu.hooks.artifacts import ArtifactsHook
from airflow_tpu.hooks.tpu import CloudTPUHook

HOOKS = [CloudTPUHook, ArtifactsHook]

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "file that is not there": ({"key_path": "/nowhere/key.json"}, "does not exist on this worker"),
    "file of another kind": ({"key_path": "/nowhere/key.pem"}, r"ends with \.json in key_path"),
    "no JSON": ({"keyfile_dict": "{not json"}, "no whole JSON key"),
    "half a key": ({"keyfile_dict": {"type": "service_account", "private_key": "x"}}, "no whole JSON key"),
    "damaged key": (
        {
            "keyfile_dict": {
                "type": "service_account",
                "private_key": "x",
                "client_email": "a@b",
                "token_uri": "https://t",
            }
        },
        "no whole JSON key",
    ),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("name", BROKEN)
def test_key_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, name: str, hook: type[Any]) -> None:
    """Every way in which a key is broken is denied for good, with the field to correct, and names the connection."""
    extra, words = BROKEN[name]
    connection = {"conn_type": "google_cloud_platform", "extra": {"project": "p", **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN_KEY", json.dumps(connection))
    with pytest.raises(AccessDenied, match=f"(?s)the connection broken_key: .*{words}") as caught:
        hook(gcp_conn_id="broken_key").get_credentials_and_project_id()
    assert caught.value.retry is Retry.NEVER


def test_key_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key file that is a folder, or another user's, is no fault of the code."""
    (tmp_path / "key.json").mkdir()
    extra = {"project": "p", "key_path": str(tmp_path / "key.json")}
    monkeypatch.setenv("AIRFLOW_CONN_FOLDER", json.dumps({"conn_type": "google_cloud_platform", "extra": extra}))
    with pytest.raises(AccessDenied, match="the connection folder: "):
        ArtifactsHook(gcp_conn_id="folder").listing("gs://bucket/x")


@pytest.mark.parametrize("hook", HOOKS)
def test_connection_that_is_not_defined(hook: type[Any]) -> None:
    """The hook says so before any call."""
    with pytest.raises(ConfigError, match="conn_id = 'no_such': isn't defined in this Airflow"):
        hook(gcp_conn_id="no_such")
