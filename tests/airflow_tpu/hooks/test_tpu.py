# SPDX-License-Identifier: Apache-2.0
"""From a connection to the endpoint of the Cloud TPU API."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_tpu.errors import AccessDenied
from airflow_tpu.hooks.tpu import CloudTPUHook


def test_a_machine_without_credentials_is_denied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty connection means the machine's own login: where there is none, no other try helps."""
    monkeypatch.setenv("AIRFLOW_CONN_NOBODY", '{"conn_type": "google_cloud_platform", "extra": {"project": "p"}}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(AccessDenied, match=r"(?s)the connection nobody: .*names no key"):
        _ = CloudTPUHook(gcp_conn_id="nobody").endpoint
