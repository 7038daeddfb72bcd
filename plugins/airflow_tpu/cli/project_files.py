# SPDX-License-Identifier: Apache-2.0
"""The files of a project beside an installed package.

What a person edits is copied: DAG files, training scripts, the example grant, the connections. What belongs to a
version of the package (the program on the TPU VM, the catalogue) is not, so that it follows every upgrade.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_tpu import settings

EXAMPLE_PROJECT = "my-tpu-project"
"""Project id where none was named; also that of the example grant."""

LOGIN = "trainer"
_PRIVATE = 0o600


class ProjectFiles:
    """What is written into one directory.

    :param folder: the directory; need not be there.
    :param project_id: project of the connection to Google.
    """

    def __init__(self, folder: Path, project_id: str) -> None:
        self.folder = folder
        self.project_id = project_id

    def existing(self) -> list[str]:
        """Return the names of those that are there already, in order."""
        return sorted(name for name in (*self._shared, *self._secret) if os.path.lexists(self.folder / name))

    def write(self) -> int:
        """Write all of them; what holds a key can be read by this user only, from its first byte on.

        :return: how many.
        :raises FileExistsError: one is there; it is left as it is.
        """
        for name, content in self._shared.items():
            self._create(name, content, 0o644)
        for name, content in self._secret.items():
            self._create(name, content, _PRIVATE)
        return len(self._shared) + len(self._secret)

    def _create(self, name: str, content: bytes, mode: int) -> None:
        path = self.folder / name
        path.parent.mkdir(mode=0o777 if mode != _PRIVATE else 0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)

    @cached_property
    def _shared(self) -> Mapping[str, bytes]:
        include = settings.package_include_dir()
        example = "include/grants/example.yaml"
        return {
            **dict(_copies(settings.dags_dir(), "dags")),
            **dict(_copies(include / "train", "include/train")),
            example: (include / "grants" / "example.yaml").read_bytes(),
            "airflow.env": self._environment(),
            ".gitignore": b"/connections/\n__pycache__/\n",
        }

    def _environment(self) -> bytes:
        values = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__AIRFLOW_TPU__INCLUDE_DIR": str(self.folder / "include"),
        }
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items()).encode()

    @cached_property
    def _secret(self) -> Mapping[str, bytes]:
        private, public = _key_pair()
        google = {"conn_type": "google_cloud_platform", "extra": {"project": self.project_id}}
        ssh = {"conn_type": "ssh", "login": LOGIN, "extra": {"private_key": private}}
        connections = {"google_cloud_default": google, "tpu_ssh_default": ssh}
        # Together for ``airflow connections import``, each alone for a secrets backend.
        each = {f"connections/{name}.json": _json(connection) for name, connection in connections.items()}
        return {
            "connections/connections.json": _json(connections),
            **each,
            "connections/tpu_key": private.encode(),
            "connections/tpu_key.pub": public.encode(),
        }


def _copies(source: Path, target: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{target}/{path.relative_to(source).as_posix()}", path.read_bytes()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _key_pair() -> tuple[str, str]:
    """Return a new key for the logins on TPU VMs, private and public half as OpenSSH writes them."""
    import asyncssh

    key = asyncssh.generate_private_key("ssh-ed25519", comment=LOGIN)
    return key.export_private_key().decode(), key.export_public_key().decode()
