# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a running local cloud: the file that other programs read, and the connection for Airflow."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE_NAME = "endpoints.json"


@dataclass(frozen=True)
class TLSFrontEndpoint:
    """Where TensorFlow's own ``gs://`` goes.

    :param proxy: URL of the CONNECT proxy.
    :param ca_file: authorities to trust behind it.
    """

    proxy: str
    ca_file: str


@dataclass(frozen=True)
class Endpoints:
    """The endpoints of one cloud.

    :param project_id: the project.
    :param project_number: its number.
    :param tpu_api_endpoint: ``host:port``, gRPC in plaintext.
    :param tpu_rest_endpoint: base URL of the part of the TPU API that is served over plain HTTP, for the TPU VMs.
    :param storage_api_endpoint: base URL of Cloud Storage.
    :param control_endpoint: base URL of the control port.
    :param ssh_port: port of every TPU VM.
    :param tier: isolation of the TPU VMs: ``bwrap``, ``sshd`` or ``inprocess``.
    :param pid: process id of the cloud.
    :param tls_front: for TensorFlow's own ``gs://``.
    """

    project_id: str
    project_number: str
    tpu_api_endpoint: str
    tpu_rest_endpoint: str
    storage_api_endpoint: str
    control_endpoint: str
    ssh_port: int
    tier: str
    pid: int
    tls_front: TLSFrontEndpoint

    @classmethod
    def read(cls, state_dir: Path) -> Endpoints:
        """Read the file of a state directory.

        :raises FileNotFoundError: if no cloud has been started there, or it was ended.
        """
        fields = json.loads((state_dir / FILE_NAME).read_text(encoding="utf-8"))
        return cls(**{**fields, "tls_front": TLSFrontEndpoint(**fields["tls_front"])})

    def write(self, state_dir: Path) -> Path:
        """Write the file in one step: a reader finds the old one, none, or a complete one."""
        path = state_dir / FILE_NAME
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        os.replace(draft, path)
        return path

    def airflow_connection(self) -> dict[str, Any]:
        """Return the ``google_cloud_platform`` connection that leads here."""
        extra = {
            "project": self.project_id,
            "is_anonymous": True,
            "tpu_api_endpoint": self.tpu_api_endpoint,
            "tpu_insecure": True,
            "storage_api_endpoint": self.storage_api_endpoint,
            "resource_manager_endpoint": self.tpu_rest_endpoint,
            "ssh_port": self.ssh_port,
        }
        return {"conn_type": "google_cloud_platform", "extra": extra}
