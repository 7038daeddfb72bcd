# SPDX-License-Identifier: Apache-2.0
"""A client of the local cloud for the commands of docs/localcloud.md, run in the copy: ``cloud.py VERB [NAME]``."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

STATE = Path(".localcloud")
ZONE = "us-central1-f"
UNAVAILABLE = 503


def node(node_id: str) -> None:
    """Create a TPU, and wait for it."""
    from google.cloud import tpu_v2

    from localcloud.endpoints import Endpoints
    from localcloud.testing import eventually, tpu_client

    endpoints = Endpoints.read(STATE)
    client, parent = tpu_client(endpoints), f"projects/{endpoints.project_id}/locations/{ZONE}"
    wanted = tpu_v2.Node(accelerator_type="v2-8", runtime_version="tpu-ubuntu2204-base")
    client.create_node(parent=parent, node_id=node_id, node=wanted)
    name = f"{parent}/nodes/{node_id}"
    eventually(lambda: client.get_node(name=name).state.name, lambda state: state == "READY")


def fault(path: str) -> None:
    """Write the fault that the page shows into a file."""
    text = Path("docs/localcloud.md").read_text(encoding="utf-8")
    shown = re.search(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    if not shown:
        raise SystemExit("docs/localcloud.md shows no fault")
    Path(path).write_text(shown[1], encoding="utf-8")


def strike() -> None:
    """Write an object twice; the fault that the page shows makes both writes fail."""
    from localcloud.endpoints import Endpoints

    for _ in range(2):
        server = Endpoints.read(STATE).storage_api_endpoint
        url = f"{server}/upload/storage/v1/b/trc-local/o?uploadType=media&name=ckpt/docs"
        try:
            urllib.request.urlopen(urllib.request.Request(url, b"x", method="POST"))
        except urllib.error.HTTPError as error:
            if error.code != UNAVAILABLE:
                raise
        else:
            raise SystemExit("the fault did not strike")


if __name__ == "__main__":
    VERBS: dict[str, Callable[..., None]] = {"node": node, "fault": fault, "strike": strike}
    VERBS[sys.argv[1]](*sys.argv[2:])
