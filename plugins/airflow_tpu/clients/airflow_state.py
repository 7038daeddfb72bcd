# SPDX-License-Identifier: Apache-2.0
"""What Airflow says and keeps: the states of a run's tasks, connections, Variables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from airflow_tpu.errors import AccessDenied, ConfigError, Fault, TPUError, TransientError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_tpu.core.tpu.labels import RunKey


MARKED_KEY = "marked"
"""XCom key at the lease of a session: what a person has said of the whole DAG run, one of the two states below."""

FAILED, SUCCESS = "failed", "success"

HEALTH_SECONDS = 5.0
"""How long the health page of Airflow may take."""


def task_state(key: RunKey, task_id: str) -> str | None:
    """State of a task as it is now: who ends it may have changed it already.

    :param key: run and map index.
    :param task_id: which task of it.
    :return: None when Airflow does not know the task any more, or has not given it a state yet.
    """
    # A mapped task is answered under its id and index; one was asked for, so there is one answer.
    return next(iter(task_states(key.dag_id, key.run_id, [task_id], key.map_index).values()), None)


def task_states(dag_id: str, run_id: str, task_ids: list[str], map_index: int | None = None) -> dict[str, str | None]:
    """State of several tasks of a run as they are now.

    :param dag_id: the DAG.
    :param run_id: the run.
    :param task_ids: which tasks.
    :param map_index: which instance of a mapped one, None for all.
    :return: by task; each instance of a mapped one under its id and index. None: it has no state yet.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = RuntimeTaskInstance.get_task_states(
        dag_id=dag_id, task_ids=task_ids, run_ids=[run_id], map_index=map_index
    )
    return dict(states.get(run_id, {}))


def run_state(dag_id: str, run_id: str) -> str | None:
    """State of a DAG run; empty when Airflow has no such run, None when it cannot say."""
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    if RuntimeTaskInstance.get_dr_count(dag_id=dag_id, run_ids=[run_id]) == 0:
        return ""
    try:
        return RuntimeTaskInstance.get_dagrun_state(dag_id=dag_id, run_id=run_id)
    except AirflowRuntimeError:
        return None


def connection(conn_id: str) -> Connection:
    """A connection by its id.

    :raises ConfigError: there is none.
    :raises AccessDenied: Airflow does not give it to this task.
    :raises TransientError: Airflow did not answer, which its own code takes for a missing connection.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowSecretsBackendAccessDenied

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise _missing(conn_id) from error
    except AirflowSecretsBackendAccessDenied as error:
        raise AccessDenied(f"{error} Let this DAG's team read the connection {conn_id}.") from error


def undefined(conn_id: str) -> ConfigError:
    """The error for a connection that Airflow does not know."""
    problem = (
        "isn't defined in this Airflow: add the connection under Admin, Connections, in the secrets backend, or as "
        f"AIRFLOW_CONN_{conn_id.upper()} for workers and triggerer; or name another one"
    )
    return ConfigError([Fault("conn_id", conn_id, problem)], "the Airflow connection")


def _missing(conn_id: str) -> TPUError:
    """Tell a connection that is not defined from an API server that did not answer."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection

    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if comms is None:
        return undefined(conn_id)
    try:
        answer = comms.send(GetConnection(conn_id=conn_id))
    except AirflowRuntimeError as error:
        return TransientError(f"Airflow could not look up its connection {conn_id}: {error}; try again")
    failed = isinstance(answer, ErrorResponse) and answer.error is not ErrorType.CONNECTION_NOT_FOUND
    words = f"Airflow could not look up its connection {conn_id}: {getattr(answer, 'error', answer)}; try again"
    return TransientError(words) if failed else undefined(conn_id)


def find_connection(conn_id: str) -> Connection | None:
    """A connection by its id, None if there is none.

    :raises AccessDenied: Airflow does not give it to this task.
    :raises TransientError: Airflow did not answer.
    """
    try:
        return connection(conn_id)
    except ConfigError:
        return None


def is_paused(dag_id: str) -> bool | None:
    """Whether a DAG is paused; None where there is no such DAG, or this process may not ask."""
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetDag

    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    try:
        answer = None if comms is None else comms.send(GetDag(dag_id=dag_id))
    except AirflowRuntimeError:
        return None
    return getattr(answer, "is_paused", None)


def triggerer_is_alive() -> bool | None:
    """Whether Airflow knows a triggerer that is alive; None where that cannot be seen from here.

    The API of tasks does not tell. The health page of the API server does, without a login; it is looked for beside the
    address that tasks talk to, then at the address of the UI.
    """
    import requests

    for base in _api_servers():
        try:
            answer = requests.get(f"{base}/api/v2/monitor/health", timeout=HEALTH_SECONDS, allow_redirects=False)
            status = answer.json()["triggerer"]["status"] if answer.status_code == HTTPStatus.OK else ""
        except (requests.RequestException, ValueError, KeyError, TypeError):
            continue
        if status != "":
            return bool(status == "healthy")
    return None


def _api_servers() -> list[str]:
    from airflow.sdk.configuration import conf

    tasks = conf.get("core", "execution_api_server_url", fallback="") or ""
    pages = conf.get("api", "base_url", fallback="") or ""
    found = [tasks.rstrip("/").removesuffix("/execution"), pages.rstrip("/")]
    return list(dict.fromkeys(base for base in found if base.startswith(("http://", "https://"))))


def variable(key: str) -> object:
    """Value of an Airflow Variable, None when there is none."""
    from airflow.sdk import Variable

    return Variable.get(key, default=None)


def mask(value: str) -> None:
    """Have Airflow mask a value in every log of this process and its tasks."""
    from airflow.sdk.log import mask_secret

    mask_secret(value)


class AirflowVariables:
    """The Variables of this Airflow, as a task may use them; the last write of a key counts."""

    def get(self, key: str) -> str | None:
        """Value of a Variable, None if there is none, or if the API server did not answer (Airflow 3.3.2)."""
        found = variable(key)
        return None if found is None else str(found)

    def put(self, key: str, value: str, description: str) -> None:
        """Write a Variable.

        :raises TransientError: Airflow did not answer.
        """
        from airflow.sdk import Variable

        with _answers(key):
            Variable.set(key, value, description)

    def keys(self, prefix: str) -> list[str]:
        """Keys of the Variables in the metadata database that begin so.

        :raises TransientError: Airflow did not answer.
        """
        from airflow.sdk import Variable

        with _answers(prefix):
            return list(Variable.keys(prefix))

    def remove(self, key: str) -> None:
        """Remove a Variable; removing a missing one succeeds.

        :raises TransientError: Airflow did not answer.
        """
        from airflow.sdk import Variable

        with _answers(key):
            Variable.delete(key)


@contextmanager
def _answers(key: str) -> Iterator[None]:
    from airflow.sdk.exceptions import AirflowRuntimeError

    try:
        yield
    except AirflowRuntimeError as error:
        raise TransientError(f"Airflow could not read or write its Variable {key}: {error}; try again") from error
