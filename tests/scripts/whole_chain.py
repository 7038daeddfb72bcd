# SPDX-License-Identifier: Apache-2.0
"""Run the scripts that start many processes, apart from what the developer has running, and count what is left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
TIMEOUT = 1200
"""Seconds for a script that starts a whole Airflow, which takes a minute or two on a machine that does nothing else."""


@dataclass(frozen=True)
class Place:
    """Where the scripts of one test keep their state.

    :param folder: a temporary directory; every process they start has it in its environment or arguments.
    :param port: a free one for Airflow.
    """

    folder: Path
    port: int

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the scripts; this test's own Airflow settings are left out."""
        if not Path(sys.prefix, ".setup-stamp").exists():
            raise RuntimeError(f"{sys.prefix} was not made by scripts/setup; run these tests by scripts/test slow")
        own = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        states = {"AIRFLOW_STATE": str(self.folder / "airflow"), "CLOUD_STATE": str(self.folder / "cloud")}
        return {
            **own,
            **states,
            "VENV": sys.prefix,
            "AIRFLOW_PORT": str(self.port),
            "UP_SECONDS": str(TIMEOUT // 2),
        }

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script to its end; its output is one text."""
        command = [str(ROOT / "scripts" / script), *arguments]
        return subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def survivors(self) -> list[str]:
        """Processes that belong to this place."""
        return [
            " ".join(process.info["cmdline"] or [])
            for process in psutil.process_iter(["cmdline"])
            if self.owns(process)
        ]

    def owns(self, process: psutil.Process) -> bool:
        """Whether a process was started, at whatever remove, by the scripts of this place."""
        try:
            values = [*process.environ().values(), *process.cmdline()]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
        return process.pid != os.getpid() and any(str(self.folder) in value for value in values)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
