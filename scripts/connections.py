# SPDX-License-Identifier: Apache-2.0
"""Write the two Airflow connections of the local cloud as shell exports.

Usage: ``connections.py ENDPOINTS_JSON HOME``. Makes the SSH key ``HOME/id_ed25519`` if there is none, and writes
``HOME/connections.env``, which is to be sourced; both are readable by this user only. Against Google the same two
connections differ in nothing but their endpoints, credentials and SSH port.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

LOGIN = "trainer"


def main(endpoints_file: str, home: str) -> None:
    """Make the key, if need be, and write the exports."""
    endpoints = json.loads(Path(endpoints_file).read_text(encoding="utf-8"))
    connections = {
        "GOOGLE_CLOUD_DEFAULT": google_connection(endpoints),
        "TPU_SSH_DEFAULT": ssh_connection(private_key(Path(home, "id_ed25519"))),
    }
    exports = [f"export AIRFLOW_CONN_{name}={shlex.quote(json.dumps(value))}" for name, value in connections.items()]
    write_private(Path(home, "connections.env"), "\n".join(exports) + "\n")


def google_connection(endpoints: dict[str, Any]) -> dict[str, Any]:
    """The ``google_cloud_platform`` connection that points at the local cloud."""
    extra = {
        "project": endpoints["project_id"],
        "is_anonymous": True,
        "tpu_api_endpoint": endpoints["tpu_api_endpoint"],
        "tpu_insecure": True,
        "storage_api_endpoint": endpoints["storage_api_endpoint"],
        "resource_manager_endpoint": endpoints["tpu_rest_endpoint"],
        "ssh_port": endpoints["ssh_port"],
    }
    return {"conn_type": "google_cloud_platform", "extra": extra}


def ssh_connection(key: str) -> dict[str, Any]:
    """The ``ssh`` connection: who logs in on a TPU VM, and with which key."""
    return {"conn_type": "ssh", "login": LOGIN, "extra": {"private_key": key}}


def private_key(path: Path) -> str:
    """The key in OpenSSH's format, made on first use."""
    if not path.exists():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        write_private(path, pem.decode())
    return path.read_text(encoding="utf-8")


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, from its first byte on."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
