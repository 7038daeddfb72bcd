# SPDX-License-Identifier: Apache-2.0
"""Airflow's own API server as a process, with this checkout's plugins folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from localcloud.testing import eventually

_PATIENCE = 480.0
_CALL = 60.0
"""Seconds for the first answer of a cold server; a client that hangs up early makes it start over."""


@contextmanager
def api_server(log: Path) -> Iterator[str]:
    """Run it on a free port of this machine, everybody an admin, until the block ends.

    :param log: where its output goes.
    :return: the address.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "airflow", "api-server", *where]
    settings = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__BASE_URL": url,
        "NO_PROXY": "127.0.0.1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        eventually(lambda: _answers(url, process, log), bool, _PATIENCE)
        yield url
    finally:
        # The server has a worker process of its own; the session ends as a whole.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _answers(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"the API server ended:\n{log.read_text(errors='replace')[-3000:]}")
    try:
        with urlopen(f"{url}/api/v2/version", timeout=_CALL) as answer:
            return bool(answer.status == 200)
    except OSError:  # refused, or cut off before the answer
        return False
