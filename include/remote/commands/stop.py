"""The stop command: the supervisor does it while it lives; otherwise this command does."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import protocol

from machine import processes, state
from machine.run_dir import RunDir

_MARGIN_SECS = 10.0  # sweep and recording, after the grace
_POLL_SECS = 0.05


def stop(run: RunDir, grace_secs: float) -> dict[str, Any]:
    """Stop an attempt and everything it started; returns the fields of a ``stopped`` message.

    Doing it twice, or after the end, does no harm.

    :param grace_secs: seconds between the request and the kill.
    """
    if state.look(run).name == state.ABSENT:
        return {"state": state.ABSENT, "result": None, "killed": 0, "survivors": []}
    if state.look(run).name == state.RUNNING:
        # It makes the stop file itself, at the moment of its signal: a script that sees the file early and ends well
        # would get the signal while it ends, and look killed.
        _ask_supervisor(run, grace_secs)
    run.stop_file.touch()
    killed = _end_remains(run, grace_secs)
    now = state.look(run)
    survivors = [process.pid for process in remains(run)]
    return {"state": now.name, "result": now.result, "killed": killed, "survivors": survivors}


def _ask_supervisor(run: RunDir, grace_secs: float) -> None:
    """Have the supervisor stop its command and wait for the result, but not for ever."""
    run.write(protocol.STOP_REQUEST_FILE, {"grace_secs": grace_secs})
    end = time.monotonic() + grace_secs + _MARGIN_SECS
    asked = False
    while state.look(run).name == state.RUNNING and time.monotonic() < end:
        asked = asked or _signal_supervisor(run)
        time.sleep(_POLL_SECS)


def _signal_supervisor(run: RunDir) -> bool:
    """A run that is only just starting has no supervisor to signal yet."""
    pid = (run.read(protocol.PID_FILE) or {}).get("supervisor_pid")
    process = processes.read(pid) if isinstance(pid, int) else None
    return process is not None and processes.send(process, signal.SIGTERM)


def remains(run: RunDir) -> list[processes.Process]:
    """Return what is alive of an attempt: marked processes, the recorded command, and all below them."""
    found = {process.pid: process for process in processes.marked(str(run.path))}
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


def _end_remains(run: RunDir, grace_secs: float) -> int:
    """TERM, grace, KILL for what no supervisor looks after; returns how many needed KILL."""

    def find() -> list[processes.Process]:
        return remains(run)

    processes.terminate(find())
    if not processes.wait_until_none(find, grace_secs):
        return 0
    killed = processes.kill(find)
    processes.wait_until_none(find, _MARGIN_SECS)
    return killed
