# SPDX-License-Identifier: Apache-2.0
"""What a connection says about endpoints, read strictly.

``bool("false")`` is true, and a URI-style extra turns everything into text: so booleans are parsed by word, and
plaintext or anonymous access is refused unless the host is loopback, private, or named in ``[airflow_tpu]
insecure_hosts``. Cloud Storage without TLS is used without credentials on every host: its client would send a token in
the clear.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

from airflow_tpu.errors import ConfigError, Fault, TPUError

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off", ""})

SSH_PORT = 22
"""Port of the TPU VMs' SSH server where a connection names no other."""


@dataclass(frozen=True)
class ConnectionOptions:
    """Our keys of a ``google_cloud_platform`` connection's extra.

    :param tpu_api_endpoint: ``host:port`` instead of Google's; empty means Google.
    :param tpu_insecure: plaintext gRPC.
    :param storage_api_endpoint: URL instead of Google's.
    :param ssh_port: port of the TPU VMs' SSH server.
    :param anonymous: no credentials at all.
    :param resource_manager_endpoint: URL instead of Google's, of Cloud Resource Manager.
    """

    tpu_api_endpoint: str = ""
    tpu_insecure: bool = False
    storage_api_endpoint: str = ""
    ssh_port: int = SSH_PORT
    anonymous: bool = False
    resource_manager_endpoint: str = ""


def parse_options(field: Callable[[str], Any], allowed_hosts: frozenset[str] = frozenset()) -> ConnectionOptions:
    """Read our keys from a connection.

    :param field: looks up one key of the extra, None when absent.
    :param allowed_hosts: hosts that may be reached without TLS or credentials beside loopback and private ones.
    :raises ConfigError: every wrong value at once.
    """
    faults: list[Fault] = []
    options = ConnectionOptions(
        tpu_api_endpoint=str(field("tpu_api_endpoint") or ""),
        tpu_insecure=_boolean("tpu_insecure", field("tpu_insecure"), faults),
        storage_api_endpoint=str(field("storage_api_endpoint") or ""),
        resource_manager_endpoint=str(field("resource_manager_endpoint") or "").rstrip("/"),
        ssh_port=_port(field("ssh_port"), faults),
        anonymous=_boolean("is_anonymous", field("is_anonymous"), faults),
    )
    _check_hosts(options, allowed_hosts, faults)
    for name in ("storage_api_endpoint", "resource_manager_endpoint"):
        check_storage_url(name, getattr(options, name), options.anonymous, faults)
    if faults:
        raise ConfigError(faults, "the google_cloud_platform connection")
    return options


def _boolean(name: str, value: Any, faults: list[Fault]) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        faults.append(Fault(name, value, "is not a boolean", ("true", "false")))
    return word in _TRUE


def _port(value: Any, faults: list[Fault]) -> int:
    text = str(value if value not in (None, "") else SSH_PORT)
    if not text.isdigit() or not 0 < int(text) < 65536:
        faults.append(Fault("ssh_port", value, "is not a TCP port", ("1 to 65535",), str(SSH_PORT)))
        return SSH_PORT
    return int(text)


def _check_hosts(options: ConnectionOptions, allowed: frozenset[str], faults: list[Fault]) -> None:
    endpoints = {
        "tpu_api_endpoint": options.tpu_api_endpoint.rpartition(":")[0],
        "storage_api_endpoint": urlparse(options.storage_api_endpoint).hostname or "",
    }
    for name, host in endpoints.items():
        unprotected = options.anonymous or (name == "tpu_api_endpoint" and options.tpu_insecure)
        if unprotected and not (host and is_near(host, allowed)):
            problem = (
                "is reached without credentials or TLS, which only a loopback, private or allow-listed host may be"
            )
            faults.append(Fault(name, host or "(Google)", problem, tuple(sorted(allowed)), "127.0.0.1"))


def check_storage_url(name: str, url: str, anonymous: bool, faults: list[Fault]) -> None:
    """Refuse a Cloud Storage endpoint that would receive an access token without TLS.

    :param name: of the setting that holds the endpoint.
    :param url: the endpoint, empty for Google's.
    :param anonymous: whether requests carry no token.
    :param faults: what is wrong is added here.
    """
    if not url:
        return
    parts = urlparse(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        faults.append(Fault(name, url, "is not a URL", ("https://host:port", "http://host:port"), f"https://{url}"))
    elif parts.scheme.lower() == "http" and not anonymous:
        problem = "has no TLS, so that an access token of Google's would travel in the clear; set is_anonymous"
        faults.append(Fault(name, url, problem, (), f"https://{url.partition('://')[2]}"))


def is_near(host: str, allowed: frozenset[str]) -> bool:
    """Whether a host may be reached without TLS: loopback, private or allow-listed."""
    bare = host.strip("[]")
    if bare in allowed or bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_private
    except ValueError:
        return False


def cloud_failures() -> tuple[type[Exception], ...]:
    """Everything by which talking to Google, to a TPU VM or to Airflow may fail, for those who go on without."""
    from airflow.sdk.exceptions import AirflowException
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    # OSError: a file that is missing, and every failed connection of requests.
    return (TPUError, AirflowException, GoogleAPIError, GoogleAuthError, OSError)
