"""Connections of Airflow: one that is not defined is not one that Airflow could not look up."""

from __future__ import annotations

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
