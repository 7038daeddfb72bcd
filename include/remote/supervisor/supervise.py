"""The supervisor: parent of the user's command, alive as long as it, independent of every SSH connection.

It adopts whatever the command leaves behind (``PR_SET_CHILD_SUBREAPER``, prctl(2)), so that nothing of an attempt
outlives its result, and it writes that result into bytes it reserved before the command could fill the disk.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from typing import Any, Iterator, NamedTuple

import protocol

from machine import processes
from machine.run_dir import ReservedFile, RunDir
from supervisor.mirror_process import Mirroring, runner_command
from supervisor.process_setup import drain, environment, wake_on_signals
from supervisor.stall import Stall
from supervisor.stop_policy import Stopping

_SWEEP_SECS = 2.0  # what leftovers get between TERM and KILL
_LAST_PUSH_SECS = 2.0  # what the last checkpoint gets when the grace is used up
_UNKILLABLE_SECS = 5.0  # a process stuck in the kernel must not keep the result from being recorded


class Ending(NamedTuple):
    """How a step ended: one of the two is None."""

    exit_code: int | None
    signal: int | None


class Supervisor:
    """Runs the steps of one job and records how they ended.

    :param run: where the attempt lives.
    :param job: the client's job: argv, setup, environment, working_dir, grace_secs, deadline, stall_secs, artifacts.
    """

    def __init__(self, run: RunDir, job: dict[str, Any]) -> None:
        self._run = run
        self._job = job
        self._stopping = Stopping(run, job)
        self._stall = Stall(float(job.get("stall_secs") or 0.0), run.log, (run.output, run.checkpoints))
        self._log = os.open(str(run.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._result = ReservedFile(run.path / protocol.EXIT_FILE, 4096 + 2 * len(json.dumps(job.get("artifacts", []))))
        self._mirroring = Mirroring(run, job, self._log)
        self._wakeup = wake_on_signals(self._stopping.ask)
        self._step: int | None = None
        self._status: int | None = None

    def run(self, ready: int) -> None:
        """Run the steps; ``ready`` is a pipe that is told about the first one."""
        started_at = time.time()
        phase, ending = self._run_steps(ready)
        document = {
            "exit_code": ending.exit_code,
            "signal": ending.signal,
            "signal_name": "" if ending.signal is None else signal.Signals(ending.signal).name,
            "phase": phase,
            "stopped": self._stopping.requested,
            "stop_command": self._stopping.by_command,
            "deadline": self._stopping.past_deadline,
            "stalled": self._stall.stalled,
            "stalled_secs": round(self._stall.seconds, 1),
            "leftovers_killed": self._sweep(),
            "missing_artifacts": self._missing_artifacts(),
            "started_at": started_at,
            "ended_at": time.time(),
        }
        # What happens from here on is no part of the run: the deadline may pass while its checkpoint travels.
        self._finish_mirroring(trusted=ending.signal is None)
        self._result.commit({**document, **self._mirroring.result(), "log_size": os.fstat(self._log).st_size})

    def _run_steps(self, ready: int) -> tuple[str, Ending]:
        for phase, argv in self._steps():
            ending = self._run_step(argv, ready)
            if phase == protocol.RUN_PHASE or ending != Ending(0, None):
                break
            if self._stopping.begun:
                return phase, Ending(protocol.EXIT_STOPPED, None)
        return phase, ending

    def _steps(self) -> Iterator[tuple[str, list[str]]]:
        if self._mirroring.wanted:
            yield protocol.RESTORE_PHASE, runner_command("restore", self._run)
        self._mirroring.attend()
        if self._job.get("setup"):
            yield protocol.SETUP_PHASE, self._job["setup"]
        yield protocol.RUN_PHASE, self._job["argv"]

    def _run_step(self, argv: list[str], ready: int) -> Ending:
        self._record(None)
        reserved = ReservedFile(self._run.path / protocol.PID_FILE)  # the command may fill the disk at once
        try:
            process = subprocess.Popen(
                argv,
                cwd=str(self._run.bundle / self._job.get("working_dir", "")),
                env=environment(self._run, self._job),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._say("cannot start %r: %s" % (argv[0], error))
            _tell(ready, self._record(None, reserved))
            absent = isinstance(error, FileNotFoundError)
            return Ending(protocol.EXIT_NOT_FOUND if absent else protocol.EXIT_NOT_EXECUTABLE, None)
        self._step, self._status = process.pid, None
        self._stall.begin()
        process.returncode = 0  # the loop below reaps it, not Popen
        _tell(ready, self._record(process.pid, reserved))
        return self._wait()

    def _wait(self) -> Ending:
        while True:
            self._reap()
            if self._status is not None:
                break
            if self._stall.attend() or self._mirroring.overtaken:
                self._stopping.end(self._below)
            self._stopping.attend(self._below)
            if self._mirroring.begun:
                self._mirroring.attend()
            self._sleep(min(self._stopping.longest_wait(), self._stall.wait()))
        if os.WIFSIGNALED(self._status):
            return Ending(None, os.WTERMSIG(self._status))
        return Ending(os.WEXITSTATUS(self._status), None)

    def _sleep(self, seconds: float) -> None:
        select.select([self._wakeup], [], [], max(seconds, 0.0))
        drain(self._wakeup)

    def _finish_mirroring(self, trusted: bool) -> None:
        """Give the last checkpoint what is left of the grace, and a moment if nothing is."""
        self._mirroring.finish(trusted)
        end = time.monotonic() + max(self._stopping.left(), _LAST_PUSH_SECS)
        while self._mirroring.pid and time.monotonic() < end:
            self._sleep(min(end - time.monotonic(), self._stopping.longest_wait()))
            self._reap()
            self._stopping.attend(list)
            end = min(end, time.monotonic() + max(self._stopping.left(), _LAST_PUSH_SECS))
        mirror = processes.read(self._mirroring.pid)
        if self._mirroring.pid and mirror is not None:
            processes.send(mirror, signal.SIGKILL)

    def _reap(self) -> None:
        """Collect every dead child, ours and adopted: a zombie would look alive for ever."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._step:
                self._status = status
            self._mirroring.reaped(pid, status)

    def _below(self) -> list[processes.Process]:
        """Everything of the command's: our own helper is not among it."""
        self._reap()
        return [process for process in processes.descendants(os.getpid()) if process.pid != self._mirroring.pid]

    def _sweep(self) -> int:
        """End what the command left behind: files must not change while they are copied."""
        left = self._below()
        processes.terminate(left)
        if processes.wait_until_none(self._below, _SWEEP_SECS):
            processes.kill(self._below)
            processes.wait_until_none(self._below, _UNKILLABLE_SECS)
        return len(left)

    def _record(self, pid: int | None, reserved: ReservedFile | None = None) -> dict[str, Any]:
        command, supervisor = processes.read(pid or 0), processes.read(os.getpid())
        document = {
            "pid": pid,
            "start_time": None if command is None else command.start_time,
            "supervisor_pid": os.getpid(),
            "supervisor_start_time": None if supervisor is None else supervisor.start_time,
            "boot_id": processes.boot_id(),
        }
        if reserved is None:
            self._run.write(protocol.PID_FILE, document)
        else:
            reserved.commit(document)
        return document

    def _say(self, text: str) -> None:
        os.write(self._log, ("airflow-tpu: " + text + "\n").encode("utf-8", "backslashreplace"))

    def _missing_artifacts(self) -> list[str]:
        return [pattern for pattern in self._job.get("artifacts", []) if not any(self._run.output.glob(pattern))]


def _tell(ready: int, document: dict[str, Any]) -> None:
    """Tell the start command, which may have died with its connection: that is no reason not to run."""
    try:
        os.write(ready, json.dumps(document).encode("ascii") + b"\n")
    except OSError:
        return
