# SPDX-License-Identifier: Apache-2.0
"""The login of a private repository: an Airflow connection, which goes to its own server and to no other.

A person who may trigger a DAG names both the connection and the address, so the connection itself has to say which
server its token is for: as its host, a URL or a name. That is how Airflow's own connection types ``git`` and ``github``
are filled in (``airflow/providers/git/hooks/git.py``, ``airflow/providers/github/hooks/github.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_tpu.clients import airflow_state
from airflow_tpu.clients.repository.git import GitLogin
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_tpu.core.request.references.source_address import GitAddress

FIELD = "source_conn_id"
_GITHUB = "github.com"
_ANY_USER = "git"
"""GitHub and GitLab look at the token alone, and want a name before it."""


def read_git_login(conn_id: str, address: GitAddress) -> GitLogin:
    """Read the login of a connection.

    :param conn_id: its id.
    :param address: of the repository that it is for.
    :raises ConfigError: there is no such connection, it has no token, or it is another server's.
    """
    connection = airflow_state.find_connection(conn_id)
    if connection is None:
        raise ConfigError([Fault(FIELD, conn_id, "there is no such connection in Airflow")], "the source")
    faults, server = [], _server(connection)
    if not connection.password:
        faults.append(Fault(FIELD, conn_id, "has no password; it is where the token of the server belongs"))
    if not server:
        faults.append(
            Fault(FIELD, conn_id, "has no host; it says which server the token may be sent to", (), address.host)
        )
    elif server != address.host.lower():
        faults.append(Fault(FIELD, conn_id, f"is for {server}, and the project is on {address.host}"))
    if faults:
        raise ConfigError(faults, "the source")
    return GitLogin(connection.login or _ANY_USER, connection.password or "")


def _server(connection: Connection) -> str:
    """Host and port that a connection is for, empty if it does not say."""
    host = (connection.host or "").strip().lower()
    if not host:
        return _GITHUB if connection.conn_type == "github" else ""
    server = urlsplit(host if "://" in host else f"//{host}").netloc.rpartition("@")[2]
    if connection.port and ":" not in server:
        server = f"{server}:{connection.port}"
    return _GITHUB if server in (f"api.{_GITHUB}", f"www.{_GITHUB}") else server
