# SPDX-License-Identifier: Apache-2.0
"""Run a command that logs Airflow's JSON lines, print what a person wants to see, and keep every line in a file.

Usage: ``narrate.py LOG_FILE COMMAND ...``. Prints the beginning of each task, what this project's own code and the
training script log, and every warning, error and exception. Ends with the command's exit code. A TERM signal is passed
on to the command, and followed by KILL if that does not end it: Airflow takes TERM for the failure of one task, and
would start the next.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

OURS = re.compile(r"(^|\.)airflow_tpu(\.|$)")
TASK_STARTS = re.compile(r"^\[DAG TEST\] starting task_id=(?P<task>\S+)")
# Marks for Airflow's log page, which folds the lines between them.
FOLD = re.compile(r"::(end)?group::")
LOUD = frozenset({"warning", "error", "critical"})
# Logged every second while a task waits for its next try.
WAITING = "No tasks to run."
# dag.test() runs without the process that makes a DAG's assets known; the events are there all the same.
UNKNOWN_ASSET = re.compile(
    r"^(AssetModel .* not found; cannot create asset event|Emitting event for inactive AssetModel )"
)
GRACE_SECS = 10


def main(log_file: str, *command: str) -> int:
    """Run the command to its end and return its exit code, as a shell would count it."""
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    end_with_us(child)
    assert child.stdout is not None  # noqa: S101 - PIPE was asked for; this is for the type checker
    with open(log_file, "w", encoding="utf-8") as log:
        for line in narrate(keep(child.stdout, log.write), lambda: time.monotonic() - started):
            print(line, flush=True)
    code = child.wait()
    return code if code >= 0 else 128 - code


def end_with_us(child: subprocess.Popen[str]) -> None:
    """Pass a TERM signal on, and send KILL after a grace period."""

    def terminate(*_: object) -> None:
        child.terminate()
        signal.alarm(GRACE_SECS)

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGALRM, lambda *_: child.kill())


def keep(lines: Iterable[str], write: Callable[[str], object]) -> Iterator[str]:
    """Write each line, then pass it on."""
    for line in lines:
        write(line)
        yield line


def narrate(lines: Iterable[str], elapsed: Callable[[], float]) -> Iterator[str]:
    """Yield the lines to show; what is not one of Airflow's JSON records is a program's own output and is shown."""
    last = ""
    for line in lines:
        record = parse(line)
        shown = line.rstrip() if record is None else tell(record)
        if shown and shown != last:
            last = shown
            yield from (f"{elapsed():6.1f} s  {part}" for part in shown.splitlines())


def parse(line: str) -> dict[str, Any] | None:
    """The record of a JSON line, or None when the line is something else."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "event" in record else None


def tell(record: dict[str, Any]) -> str:
    """Return what to show of one record; empty means nothing."""
    event = str(record["event"])
    start = TASK_STARTS.match(event)
    if start:
        return f"--- task {start['task']}"
    if event.startswith(WAITING):
        return "    waiting for the next try ..."
    if UNKNOWN_ASSET.match(event):
        return ""
    if record.get("level") in LOUD and not str(record.get("logger", "")).startswith("py.warnings"):
        return "\n".join([f"{record['level'].upper()}: {event}", *causes(record)])
    if FOLD.match(event):
        return ""
    return event if OURS.search(str(record.get("logger", ""))) else ""


def causes(record: dict[str, Any]) -> Iterator[str]:
    """The exception chain, one line each; the frames are in the log file."""
    for error in record.get("exception") or []:
        if isinstance(error, dict):
            yield f"{error.get('exc_type')}: {error.get('exc_value')}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
