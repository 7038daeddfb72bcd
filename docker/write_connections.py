# SPDX-License-Identifier: Apache-2.0
"""Write the connections that lead to the running local cloud into the file from which Airflow reads connections.

Usage: ``write_connections.py STATE_DIR CONNECTIONS_DIR``. Against Google a person writes the same file by hand. The
ports of the local cloud are new at each start, so this file is too; the SSH key is made once and stays with its state.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from localcloud.endpoints import Endpoints

LOGIN = "trainer"
FILE_NAME = "connections.yaml"


def main(state_dir: str, connections_dir: str) -> None:
    """Make the key, if need be, and write the file; JSON is YAML too."""
    connections = {
        "google_cloud_default": Endpoints.read(Path(state_dir)).airflow_connection(),
        "tpu_ssh_default": {
            "conn_type": "ssh",
            "login": LOGIN,
            "extra": {"private_key": private_key(Path(state_dir, "id_ed25519"))},
        },
    }
    write_private(Path(connections_dir, FILE_NAME), json.dumps(connections, indent=2) + "\n")


def private_key(path: Path) -> str:
    """The key in OpenSSH's format, made on first use."""
    if not path.exists():
        import asyncssh

        write_private(path, asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode())
    return path.read_text(encoding="utf-8")


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; user and group may read it, because containers may differ in their user."""
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
