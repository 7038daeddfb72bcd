# SPDX-License-Identifier: Apache-2.0
"""The state of an attempt, judged from its files and from /proc: never from one of them alone."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import protocol

from machine import deadline, processes
from machine.run_dir import RunDir

ABSENT = "absent"
RUNNING = "running"
FINISHED = "finished"
GONE = "gone"

_STARTING_SECS = 15.0  # from the directory to the supervisor's first record


class State(NamedTuple):
    """:param name: absent, running, finished or gone; the other fields are empty unless they apply."""

    name: str
    reason: str = ""
    detail: str = ""
    result: Any = None


def observe(run: RunDir) -> State:
    """Return the state of an attempt now."""
    state = _finished(run)
    if state is not None:
        return state
    if not run.path.is_dir():
        return State(ABSENT, protocol.NO_PID, "this machine knows no attempt %d of %s" % (run.attempt, run.run))
    pid = run.read(protocol.PID_FILE)
    if pid is None:
        return _starting(run)
    if pid.get("boot_id") != processes.boot_id():
        return State(GONE, protocol.REBOOTED, "the machine has been rebooted since the start")
    if processes.is_alive(pid.get("supervisor_pid"), pid.get("supervisor_start_time")):
        return State(RUNNING)
    # The supervisor may have ended well between the two readings.
    return _finished(run) or State(GONE, protocol.SUPERVISOR_DIED, "the supervisor was killed and left no result")


def _finished(run: RunDir) -> State | None:
    result = run.read(protocol.EXIT_FILE)
    return None if result is None else State(FINISHED, result=result)


def _starting(run: RunDir) -> State:
    try:
        age = time.time() - run.path.stat().st_mtime
    except FileNotFoundError:
        return State(ABSENT, protocol.NO_PID, "the start failed and took its directory away")
    if age < _STARTING_SECS:
        return State(RUNNING)
    return State(GONE, protocol.NO_PID, "the start was interrupted before the supervisor recorded itself")


def describe(run: RunDir) -> dict[str, Any]:
    """Return the fields of a ``status`` message."""
    state = observe(run)
    delivered = run.read(protocol.DELIVERED_FILE) or {}
    return {
        "state": state.name,
        "reason": state.reason,
        "detail": state.detail,
        "result": state.result,
        "size": run.log_size(),
        "delivered": delivered.get("offset", 0),
        "progress": run.progress(),
        "mirror": run.read(protocol.MIRROR_FILE),
        "deadline": deadline.current(run, run.read(protocol.JOB_FILE) or {}),
    }
