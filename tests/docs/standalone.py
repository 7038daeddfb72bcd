# SPDX-License-Identifier: Apache-2.0
"""``airflow standalone`` in the background, with a local cloud in Google's place: ``standalone.py up|down [STATUS]``.

``up`` returns when the DAGs are there; ``down`` waits for the run that was triggered meanwhile, and fails if it failed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

from localcloud.testing import eventually

HOME = Path(os.environ["HOME"])
PID = HOME / "standalone.pid"
START = """
python -m localcloud up --detach --bucket trc-local=US-EAST1
python scripts/connections.py .localcloud/endpoints.json "$HOME"
. "$HOME/connections.env"
exec airflow standalone
"""
ENDED = {"success", "failed"}
TIMEOUT = 900.0


def up() -> None:
    """Start it, and wait until the DAG of the page can be triggered."""
    with (HOME / "standalone.log").open("w") as log:
        started = subprocess.Popen(["bash", "-ec", START], stdout=log, stderr=log, start_new_session=True)
    PID.write_text(str(started.pid))
    eventually(lambda: _answer("SELECT dag_id FROM serialized_dag"), lambda found: "tpu_train" in found, TIMEOUT, 1.0)


def down(code: str) -> None:
    """End everything; if all went well so far, wait for the run before that.

    :param code: exit status of what was typed.
    """
    states = ["success"]
    try:
        if code == "0":
            query = "SELECT state FROM dag_run WHERE dag_id = 'tpu_train'"
            states = eventually(lambda: _answer(query), _is_over, TIMEOUT, 1.0)
    finally:
        os.killpg(int(PID.read_text()), signal.SIGTERM)
        subprocess.run([sys.executable, "-m", "localcloud", "down"], check=True)
    if states != ["success"]:
        raise SystemExit(f"the run ended as {states}")


def _is_over(states: list[str]) -> bool:
    return bool(states) and set(states) <= ENDED


def _answer(query: str) -> list[str]:
    try:
        with sqlite3.connect(f"file:{os.environ['AIRFLOW_HOME']}/airflow.db?mode=ro", uri=True) as database:
            return [row[0] for row in database.execute(query)]
    except sqlite3.OperationalError:  # not there yet, or being written
        return []


if __name__ == "__main__":
    up() if sys.argv[1] == "up" else down(sys.argv[2])
