# SPDX-License-Identifier: Apache-2.0
"""The SSH key of a connection: read, checked, never shown."""

from __future__ import annotations

import json
from collections.abc import Callable

import asyncssh
import pytest
from airflow.sdk import Connection

from airflow_tpu.clients.ssh import Login
from airflow_tpu.clients.ssh_login import public_key_line, read_login
from airflow_tpu.errors import ConfigError


def connection(user: str | None, key: str) -> Connection:
    """An ``ssh`` connection with a private key in its extra."""
    return Connection(conn_id="tpu_ssh_default", conn_type="ssh", login=user, extra=json.dumps({"private_key": key}))


def test_user_and_key_are_read(login: Login) -> None:
    """Login and private key come from the connection as they are, and the key is not part of the login's text."""
    found = read_login(connection(login.user, login.private_key))
    assert found == login
    assert login.private_key.splitlines()[1] not in repr(found)


@pytest.mark.parametrize("algorithm", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
@pytest.mark.parametrize("form", ["openssh", "pkcs8-pem"])
def test_public_half_is_a_line_of_metadata(algorithm: str, form: str) -> None:
    """Every usual kind and form of key gives the line that Google's guest agent reads."""
    key = asyncssh.generate_private_key(algorithm)
    line = public_key_line(Login("trainer", key.export_private_key(form).decode()))
    kind, base64 = key.export_public_key().decode().split()[:2]
    assert line == f"trainer:{kind} {base64} trainer"


def test_all_faults_at_once() -> None:
    """The error about a connection without user and key names both, and the connection."""
    with pytest.raises(ConfigError, match="tpu_ssh_default") as caught:
        read_login(connection(None, ""))
    assert [fault.field for fault in caught.value.faults] == ["login", "extra.private_key"]


@pytest.mark.parametrize("damage", [lambda key: key[:120], lambda key: "s3cr3t-" + key, lambda _: "s3cr3t-nonsense"])
def test_unreadable_key_is_not_shown(login: Login, damage: Callable[[str], str]) -> None:
    """The error says that the key cannot be read, and neither it nor its cause repeats a piece of it."""
    key = damage(login.private_key)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        read_login(connection("trainer", key))
    assert key.splitlines()[0] not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_key_with_a_passphrase_is_refused() -> None:
    """A key that would need a passphrase is refused before anything is created."""
    key = asyncssh.generate_private_key("ssh-ed25519").export_private_key(passphrase="open sesame").decode()
    with pytest.raises(ConfigError, match=r"has a passphrase, .*ssh-keygen -p"):
        read_login(connection("trainer", key))
