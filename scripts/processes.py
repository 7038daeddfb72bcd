# SPDX-License-Identifier: Apache-2.0
"""Start, list and end the background processes of ``scripts/up``, and nothing else.

Every process started here, and whatever it starts in turn, carries a mark in its environment that is made once per
stack. Ending a stack means ending the bearers of its mark: a recycled process id or another Airflow on this machine
is never touched, and a process that has left its parent and its session is still found.

Usage: ``processes.py STATE_FILE start NAME LOG_FILE COMMAND ...`` | ``running`` | ``stop``
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

MARK = "AIRFLOW_TPU_STACK"
GRACE_SECS = 20.0


def main(state_file: str, action: str, *arguments: str) -> int:
    """Do one of the three actions; the exit code says whether it worked."""
    state = Path(state_file)
    actions: dict[str, Callable[..., int]] = {"start": start, "running": running, "stop": stop}
    return actions[action](state, *arguments)


def start(state: Path, name: str, log_file: str, *command: str) -> int:
    """Start a command as a session of its own, its output in the log file, and remember it under its name."""
    known = load(state)
    # setproctitle, which Airflow uses, would otherwise write over the environment that carries the mark.
    environment = {**os.environ, MARK: known["mark"], "SPT_NOENV": "1"}
    with open(log_file, "ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    known["processes"][name] = process.pid
    state.write_text(json.dumps(known), encoding="utf-8")
    return 0


def running(state: Path) -> int:
    """Exit code 0 when every process that was started still runs; else name the ones that ended."""
    known = load(state)
    bearers = {process.pid for process in marked(known["mark"])}
    ended = [name for name, pid in known["processes"].items() if pid not in bearers]
    if ended or not known["processes"]:
        print(f"not running: {', '.join(ended) or 'nothing was started'}")
        return 1
    return 0


def stop(state: Path) -> int:
    """TERM, grace, KILL for all bearers of the mark; exit code 1 if one is left after that."""
    mark = load(state)["mark"]
    processes = marked(mark)
    for process in processes:
        attempt(process.terminate)
    psutil.wait_procs(processes, timeout=GRACE_SECS)
    # Looked up again: a process may have started another one while it was ending.
    stubborn = marked(mark)
    for process in stubborn:
        attempt(process.kill)
    psutil.wait_procs(stubborn, timeout=GRACE_SECS)
    left = marked(mark)
    if left:
        print("still running: " + ", ".join(f"{process.pid} ({process.name()})" for process in left))
        return 1
    state.unlink(missing_ok=True)
    return 0


def load(state: Path) -> dict[str, Any]:
    """What was started, or a new stack with a new mark."""
    if state.exists():
        known: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
        return known
    return {"mark": secrets.token_hex(16), "processes": {}}


def marked(mark: str) -> list[psutil.Process]:
    """All living processes that carry the mark."""
    return [process for process in psutil.process_iter() if bears(process, mark)]


def bears(process: psutil.Process, mark: str) -> bool:
    """Whether a process carries the mark; processes of other users, which cannot be read, do not."""
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def attempt(signal: Callable[[], None]) -> None:
    """Send a signal to a process that may just have ended."""
    try:
        signal()
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
