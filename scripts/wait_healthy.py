# SPDX-License-Identifier: Apache-2.0
"""Wait until Airflow's processes report healthy and a DAG can be triggered; print a line for each one that is up.

Usage: ``wait_healthy.py BASE_URL SECONDS DAG_ID``
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
PAUSE_SECS = 1.0
# The first answer of a cold api-server takes long; a client that hangs up early makes it start over.
CALL_SECS = 60.0


def main(base_url: str, seconds: str, dag_id: str) -> int:
    """Exit code 0 when all is up in time, 1 after naming what is missing."""
    deadline = time.monotonic() + float(seconds)
    missing = ["api-server", *PARTS, f"DAG {dag_id}"]
    while time.monotonic() < deadline:
        up = set(healthy(base_url, dag_id))
        for name in [name for name in missing if name in up]:
            print(f"    {name} is up", flush=True)
        missing = [name for name in missing if name not in up]
        if not missing:
            return 0
        time.sleep(PAUSE_SECS)
    print(f"    not up after {seconds} s: {', '.join(missing)}")
    return 1


def healthy(base_url: str, dag_id: str) -> Iterator[str]:
    """Yield the names of the parts that work now."""
    health = get(f"{base_url}/api/v2/monitor/health")
    if health is None:
        return
    yield "api-server"
    yield from (part for part in PARTS if (health.get(part) or {}).get("status") == "healthy")
    token = get(f"{base_url}/auth/token")
    if token and get(f"{base_url}/api/v2/dags/{dag_id}", token["access_token"]):
        yield f"DAG {dag_id}"


def get(url: str, token: str = "") -> dict[str, Any] | None:
    """The JSON answer of a GET, or None while there is none."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310 - ours
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECS) as answer:  # noqa: S310 - our own loopback address
            body: dict[str, Any] = json.load(answer)
            return body
    except (urllib.error.URLError, OSError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
