# SPDX-License-Identifier: Apache-2.0
"""The stop command: asks the supervisor to stop the run; without a supervisor, stops it itself."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import protocol

from machine import processes, state
from machine.run_dir import RunDir, UnknownRunVersion

_MARGIN_SECS = 10.0  # after the grace, for ending leftovers and recording the result
_POLL_SECS = 0.05
_ATTEMPT = re.compile(r"attempt-([1-9][0-9]{0,8})")


def stop(run: RunDir, grace_secs: float) -> dict[str, Any]:
    """Stop an attempt and everything it started; return the fields of a ``stopped`` message.

    Doing it twice, or after the end, does no harm.

    :param grace_secs: seconds between the request and the kill.
    """
    if state.observe(run).name == state.ABSENT:
        return {"state": state.ABSENT, "result": None, "killed": 0, "survivors": []}
    if state.observe(run).name == state.RUNNING:
        # The supervisor creates the stop file itself, together with its signal: a script that sees the file early and
        # ends well would get the signal while it ends, and look killed.
        _ask_supervisor(run, grace_secs)
    run.request_stop()
    killed = _end_remaining(run, grace_secs)
    now = state.observe(run)
    survivors = [process.pid for process in find_remaining(run)]
    return {"state": now.name, "result": now.result, "killed": killed, "survivors": survivors}


def stop_earlier(run: RunDir, grace_secs: float) -> list[int]:
    """Stop what earlier attempts of the run have left on this machine: they would share the TPU and the checkpoints.

    A supervisor that was killed leaves its command running. An attempt of another release is left as it is.

    :param grace_secs: seconds for a command to save its work before it is killed.
    :return: the attempts of which something still ran.
    """
    stopped = []
    for attempt in sorted(_attempts(run.run_path)):
        earlier = RunDir(run.run, attempt)
        with contextlib.suppress(UnknownRunVersion):
            if attempt < run.attempt and (find_remaining(earlier) or state.observe(earlier).name == state.RUNNING):
                stop(earlier, grace_secs)
                stopped.append(attempt)
    return stopped


def _attempts(run_path: Path) -> list[int]:
    found = (_ATTEMPT.fullmatch(path.name) for path in run_path.iterdir())
    return [int(match[1]) for match in found if match]


def _ask_supervisor(run: RunDir, grace_secs: float) -> None:
    """Ask the supervisor to stop its command, and wait for the result, but not for ever."""
    run.write(protocol.STOP_REQUEST_FILE, {"grace_secs": grace_secs})
    end = time.monotonic() + grace_secs + _MARGIN_SECS
    asked = False
    while state.observe(run).name == state.RUNNING and time.monotonic() < end:
        asked = asked or _signal_supervisor(run)
        time.sleep(_POLL_SECS)


def _signal_supervisor(run: RunDir) -> bool:
    """Send SIGTERM to the supervisor; return False if it has not recorded itself yet."""
    pid = (run.read(protocol.PID_FILE) or {}).get("supervisor_pid")
    process = processes.read(pid) if isinstance(pid, int) else None
    return process is not None and processes.send(process, signal.SIGTERM)


def find_remaining(run: RunDir) -> list[processes.Process]:
    """Return the live processes of an attempt: marked ones, the recorded command, and all their descendants."""
    found = {process.pid: process for process in processes.find_marked(str(run.path))}
    recorded = run.read(protocol.PID_FILE) or {}
    if recorded.get("boot_id") == processes.boot_id() and processes.is_alive(
        recorded.get("pid"), recorded.get("start_time")
    ):
        command = processes.read(recorded["pid"])
        if command is not None:
            found[command.pid] = command
    for pid in list(found):
        found.update({process.pid: process for process in processes.descendants(pid)})
    found.pop(os.getpid(), None)
    return list(found.values())


def _end_remaining(run: RunDir, grace_secs: float) -> int:
    """TERM, grace, KILL for processes without a supervisor; return how many needed KILL."""

    def find() -> list[processes.Process]:
        return find_remaining(run)

    processes.terminate(find())
    if not processes.wait_until_none(find, grace_secs):
        return 0
    killed = processes.kill(find)
    processes.wait_until_none(find, _MARGIN_SECS)
    return killed
