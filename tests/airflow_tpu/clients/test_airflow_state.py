# SPDX-License-Identifier: Apache-2.0
"""What a task can learn of its Airflow: connections, paused DAGs, whether a triggerer is alive."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from airflow_tpu.clients import airflow_state
from airflow_tpu.errors import ConfigError, Retry, TPUError, TransientError
from tests.airflow_tpu.supervisor import Supervisor


@pytest.mark.parametrize(
    ("answer", "kind", "retry"),
    [
        (ErrorType.CONNECTION_NOT_FOUND, ConfigError, Retry.NEVER),
        (ErrorType.API_SERVER_ERROR, TransientError, Retry.SOON),
        (ErrorType.GENERIC_ERROR, TransientError, Retry.SOON),
    ],
)
def test_connection_that_airflow_does_not_give(
    monkeypatch: pytest.MonkeyPatch, answer: ErrorType, kind: type[TPUError], retry: Retry
) -> None:
    """Airflow says of both that the connection is not defined; only the one that is missing fails for good."""
    with Supervisor(no_connection=answer) as supervisor:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=supervisor.socket), raising=False)
        with pytest.raises(kind, match="no_such_connection") as caught:
            airflow_state.connection("no_such_connection")
    assert caught.value.retry is retry
    assert supervisor.asked[-1] == "GetConnection"


def test_missing_connection_says_where_it_can_be_added() -> None:
    """Outside of a task, too; the name of the environment variable is the one to set."""
    with pytest.raises(ConfigError, match=r"Admin, Connections, .*AIRFLOW_CONN_NO_SUCH"):
        airflow_state.connection("no_such")


@pytest.mark.parametrize("paused", [True, False, None])
def test_paused_dag(monkeypatch: pytest.MonkeyPatch, paused: bool | None) -> None:
    """A task may ask whether a DAG is paused; of a DAG that is not there, nothing is claimed."""
    with Supervisor(paused=paused) as supervisor:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=supervisor.socket), raising=False)
        assert airflow_state.is_paused("tpu_reaper") is paused


class HealthPage(BaseHTTPRequestHandler):
    """The page of an API server, at the path where Airflow has it."""

    triggerer: ClassVar[dict[str, str | None]] = {}

    def do_GET(self) -> None:
        """Answer as Airflow 3.3 does, with 404 elsewhere."""
        found = self.path == "/api/v2/monitor/health"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"metadatabase": {"status": "healthy"}, "triggerer": self.triggerer}).encode())

    def log_message(self, format: str, *args: object) -> None:  # the base's name
        """Stay silent."""


@pytest.mark.parametrize(("status", "alive"), [("healthy", True), ("unhealthy", False), (None, False)])
@pytest.mark.parametrize("option", ["CORE__EXECUTION_API_SERVER_URL", "API__BASE_URL"])
def test_triggerer_that_is_alive_or_not(
    monkeypatch: pytest.MonkeyPatch, option: str, status: str | None, alive: bool
) -> None:
    """The health page says so, also of an Airflow that has never had one; it is found beside the tasks' own API."""
    monkeypatch.setattr(HealthPage, "triggerer", {"status": status})
    with HTTPServer(("127.0.0.1", 0), HealthPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = "/execution/" if option.startswith("CORE") else ""
        monkeypatch.setenv(f"AIRFLOW__{option}", f"http://127.0.0.1:{server.server_port}{path}")
        assert airflow_state.triggerer_is_alive() is alive
        server.shutdown()


def test_triggerer_that_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a login, or without an address, nothing is claimed."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://127.0.0.1:1")
    assert airflow_state.triggerer_is_alive() is None
