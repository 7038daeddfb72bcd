# SPDX-License-Identifier: Apache-2.0
"""The SSH key of a connection, in memory only; its public half goes into the node's metadata at create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_tpu.clients.ssh import Login
from airflow_tpu.errors import ConfigError, Fault

if TYPE_CHECKING:
    from airflow.sdk import Connection

NO_KEY = (
    "is empty; it takes the text of a private key in PEM or OpenSSH format (key_file is not read: the triggerer would "
    "need the file as well)"
)
LOCKED = (
    "has a passphrase, which no task can type: make a key of its own for the TPU VMs with ssh-keygen -N '', or take "
    "the passphrase off a copy with ssh-keygen -p"
)
UNREADABLE = "cannot be read: it is no private key in PEM or OpenSSH format, or not the whole of it"


def read_login(connection: Connection) -> Login:
    """User and private key of an ``ssh`` connection.

    :param connection: its login is the user, ``private_key`` of its extra the key (masked by Airflow).
    :raises ConfigError: the user or the key is missing or unreadable; the key itself never appears in the message.
    """
    extra: dict[str, Any] = connection.extra_dejson
    user, key = connection.login or "", str(extra.get("private_key") or "")
    faults = []
    if not user:
        faults.append(Fault("login", user, "is empty; it is the user that is created on the TPU VM", (), "airflow"))
    if not key:
        faults.append(Fault("extra.private_key", "", NO_KEY))
    if faults:
        raise ConfigError(faults, f"connection {connection.conn_id}")
    login = Login(user, key)
    public_key_line(login, connection.conn_id)  # an unreadable key is found before anything is created
    return login


def public_key_line(login: Login, conn_id: str = "") -> str:
    """``USER:KEYTYPE BASE64 USER``, the form of the node's ``ssh-keys`` metadata.

    :raises ConfigError: the key cannot be read.
    """
    import asyncssh

    try:
        key = asyncssh.import_private_key(login.private_key)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        problem = LOCKED if "assphrase" in str(error) else UNREADABLE
        raise ConfigError([Fault("extra.private_key", "(hidden)", problem)], f"connection {conn_id}") from None
    algorithm, base64 = key.export_public_key("openssh").decode().split()[:2]
    return f"{login.user}:{algorithm} {base64} {login.user}"
