# SPDX-License-Identifier: Apache-2.0
"""A reader who may see some DAGs only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.api_fastapi.app import init_auth_manager, purge_cached_app
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_tpu.core.tpu.labels import RunKey
from airflow_tpu.ui.app import create_app
from airflow_tpu.ui.data import SnapshotCache
from tests.airflow_tpu.identities import AIRFLOW
from tests.airflow_tpu.ui.made import KEY, closed, node, opened, record, snapshot
from tests.airflow_tpu.ui.rights import VISIBLE, bearer

SECRET = RunKey(AIRFLOW, "secret_dag", "manual__whistle")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, database: None) -> Iterator[TestClient]:
    """The application for people who may see one of two DAGs."""
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "tests.airflow_tpu.ui.rights.OneDagAuthManager")
    purge_cached_app()
    init_auth_manager()
    events = [opened(KEY), opened(SECRET)]
    nodes = [node(KEY.node_id(1), KEY), node(SECRET.node_id(1), SECRET)]
    known = snapshot(nodes, [*events, *(closed(event) for event in events)], [record(KEY), record(SECRET)])
    app = FastAPI()
    app.mount("/tpu", create_app(SnapshotCache(lambda: known)))
    yield TestClient(app)
    purge_cached_app()


@pytest.mark.parametrize("query", ["", f"?dag_id={VISIBLE}"])
def test_a_hidden_dag_is_not_named_anywhere(page: TestClient, query: str) -> None:
    """The answer names the DAG that the reader may see, and holds no part of the other's name or run."""
    text = page.get(f"/tpu/data{query}", headers=bearer("VIEWER")).text
    assert VISIBLE in text
    assert "secret" not in text
    assert "whistle" not in text


def test_asking_for_a_hidden_dag_is_refused(page: TestClient) -> None:
    """A request that names a DAG which the reader may not see gets 403."""
    assert page.get("/tpu/data?dag_id=secret_dag", headers=bearer("VIEWER")).status_code == 403
