# SPDX-License-Identifier: Apache-2.0
"""What a person would do in the UI of the stack, done through Airflow's REST API. Standard library only.

Usage: ``rest.py URL PASSWORD train SCRIPT WORDS_IN_LOG`` runs the DAG tpu_train and waits until it has succeeded;
``rest.py URL PASSWORD runs`` prints how many runs have.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import Any

RUN_SECONDS = 600.0
POLL_SECONDS = 2.0
RUNS = "/api/v2/dags/tpu_train/dagRuns"


@dataclass(frozen=True)
class Client:
    """A user of the REST API.

    :param url: of the api-server.
    :param token: of a user who has logged in.
    """

    url: str
    token: str = ""

    def call(self, path: str, body: dict[str, Any] | None = None, method: str = "") -> Any:
        """The JSON answer to one call; a POST if it has a body and no other method is named."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method or None)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)


def log_in(url: str, password: str) -> Client:
    """A client with the rights of the user ``admin``."""
    return Client(url, Client(url).call("/auth/token", {"username": "admin", "password": password})["access_token"])


def train(client: Client, script: str, words: str) -> None:
    """Run the DAG with a script and see that it succeeds and that the log of the task train has some words in it."""
    client.call("/api/v2/dags/tpu_train", {"is_paused": False}, "PATCH")
    run = client.call(RUNS, {"logical_date": None, "conf": {"script": script}})["dag_run_id"]
    state = wait_for_end(client, run)
    tasks = client.call(f"{RUNS}/{run}/taskInstances")["task_instances"]
    say(f"run {run}: {state}; " + ", ".join(f"{task['task_id']} {task['state']}" for task in tasks))
    log = json.dumps(client.call(f"{RUNS}/{run}/taskInstances/train/logs/1"))
    if state != "success" or words not in log:
        say(log[-6000:])
        raise SystemExit(f"{script}: the run ended as {state}; {words!r} is {'' if words in log else 'not '}in its log")


def wait_for_end(client: Client, run: str) -> str:
    """The state in which a run ends."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        state = str(client.call(f"{RUNS}/{run}")["state"])
        if state in ("success", "failed"):
            return state
        time.sleep(POLL_SECONDS)
    return f"not ended after {RUN_SECONDS:.0f} s"


def say(text: str) -> None:
    """Tell a person."""
    sys.stdout.write(text + "\n")


def main(url: str, password: str, what: str, *arguments: str) -> None:
    """Do it."""
    client = log_in(url, password)
    if what == "train":
        train(client, *arguments)
    else:
        say(str(client.call(f"{RUNS}?state=success")["total_entries"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
