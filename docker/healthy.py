# SPDX-License-Identifier: Apache-2.0
"""The health check of Airflow's containers: exit code 0 if the part works.

Usage: ``healthy.py api-server|scheduler|dag_processor|triggerer|worker``. It asks the api-server, which knows the
others by their heartbeats, and through Redis the worker. ``airflow jobs check`` answers the same and loads all of
Airflow for it: some ten seconds of a core per container and check.
"""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from pathlib import Path

HEALTH = "http://127.0.0.1:8080/api/v2/monitor/health"
BROKER_URL = Path("/run/airflow-tpu/secrets/broker_url")
SECONDS = 20.0


def main(part: str) -> int:
    """Print what is wrong with the part, if anything; return 0 if it works, else 1."""
    problem = worker() if part == "worker" else heartbeat(part)
    sys.stdout.write(f"{problem or f'{part} is healthy'}\n")
    return 1 if problem else 0


def heartbeat(part: str) -> str:
    """Ask the api-server about a part; return what is wrong, empty if nothing."""
    try:
        with urllib.request.urlopen(HEALTH, timeout=SECONDS) as answer:
            health = json.load(answer)
    except (OSError, ValueError) as error:
        return f"the api-server does not answer: {error}"
    status = health["metadatabase" if part == "api-server" else part]["status"]
    return "" if status == "healthy" else f"{part} is {status}"


def worker() -> str:
    """Ping the Celery worker through Redis; return what is wrong, empty if nothing."""
    from celery import Celery  # type: ignore[import-untyped]

    name = f"celery@{socket.gethostname()}"
    app = Celery(broker=BROKER_URL.read_text(encoding="utf-8"))
    replies = app.control.ping(destination=[name], timeout=SECONDS / 2)
    return "" if replies else f"{name} does not answer"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
